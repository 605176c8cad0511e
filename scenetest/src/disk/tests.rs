//! A directory of scenes, with and without one that nobody listed.

use super::*;

/// Compiled as `scenetest/src/disk/tests.rs`, which is where its scenes are said to be.
fn listed() -> Scene {
    Scene::new("listed", |_| Ok(()))
}

fn directory_with(text: &str) -> (tempfile::TempDir, Sources) {
    let dir = tempfile::tempdir().expect("a directory");
    let scenes = dir.path().join("scenetest/src/disk");
    fs::create_dir_all(&scenes).expect("writable");
    fs::write(scenes.join("main.rs"), "//! scenetest::main!").expect("writable");
    fs::write(scenes.join("tests.rs"), text).expect("writable");
    let manifest_dir: &'static str = dir.path().join("scenetest").display().to_string().leak();
    let sources = Sources {
        manifest_dir,
        main_file: "scenetest/src/disk/main.rs",
    };
    (dir, sources)
}

#[test]
fn a_scene_that_is_not_in_the_list_is_an_error_with_its_place() {
    let line = listed().place.line() as usize;
    let text = "\n".repeat(line - 1) + "Scene::new(\n// Scene::new( is only said here\n";
    let (_dir, sources) = directory_with(&text);
    check(sources, &[listed()]).expect("it is listed");
    let error = check(sources, &[])
        .expect_err("nothing is listed")
        .to_string();
    let place = format!("scenetest/src/disk/tests.rs:{line} makes a scene");
    assert!(error.contains(&place), "{error}");

    let (_dir, sources) = directory_with(&(text + "    Scene::new(\"another\", body)\n"));
    let error = check(sources, &[listed()]).expect_err("one is not listed");
    assert!(
        error.to_string().contains(&format!(":{} makes", line + 2)),
        "{error}"
    );
}

#[test]
fn directories_below_are_looked_through_but_for_other_programs() {
    let (dir, sources) = directory_with("");
    let below = dir.path().join("scenetest/src/disk/attention/paged");
    fs::create_dir_all(&below).expect("writable");
    check(sources, &[]).expect("there is none");
    fs::write(below.join("decode.rs"), "\nScene::new(").expect("writable");
    let error = check(sources, &[])
        .expect_err("it is not listed")
        .to_string();
    let place = "scenetest/src/disk/attention/paged/decode.rs:2 makes a scene";
    assert!(error.contains(place), "{error}");
    fs::write(dir.path().join("scenetest/src/disk/attention/main.rs"), "").expect("writable");
    check(sources, &[]).expect("that is another program's");
}

#[test]
fn without_sources_or_a_directory_there_is_nothing_to_check() {
    let (_dir, sources) = directory_with("Scene::new(");
    let away = Sources {
        manifest_dir: "/nowhere",
        ..sources
    };
    check(away, &[]).expect("nothing to check");
    let single = Sources {
        main_file: "scenetest/src/disk/tests.rs",
        ..sources
    };
    check(single, &[]).expect("other tests stand beside it");
}
