//! Names, and names that are nearly right.

use super::*;
use crate::scene::Scene;

#[test]
fn distances_count_letters() {
    for (a, b, far) in [
        ("", "", 0),
        ("case", "case", 0),
        ("case", "cose", 1),
        ("case", "cas", 1),
    ] {
        assert_eq!((distance(a, b), distance(b, a)), (far, far), "{a} {b}");
    }
    assert_eq!(distance("kitten", "sitting"), 3);
}

#[test]
fn a_thousand_scenes_are_collected_without_running_anything() {
    let names: Vec<&'static str> = (0..1_000)
        .map(|n| &*Box::leak(format!("scene_{n}").into_boxed_str()))
        .collect();
    let scenes: Vec<Scene> = names
        .iter()
        .map(|name| Scene::new(name, |_| panic!("it was run")))
        .collect();
    assert_eq!(candidates(&scenes).expect("all are good").len(), 1_000);
}

#[test]
fn names_that_no_filter_could_name_are_refused() {
    for name in ["", "a b", "a::b", "ä", "a\nb"] {
        let refused = candidates(&[Scene::new(name, |_| Ok(()))]).expect_err("a bad name");
        assert!(matches!(refused, SelectError::BadName { .. }), "{name}");
    }
}

#[test]
fn one_case_twice_in_a_scene_is_refused() {
    let scene = Scene::new("s", |_| Ok(()))
        .case(Case::new("a"))
        .case(Case::new("a"));
    let refused = candidates(&[scene]).expect_err("twice").to_string();
    assert!(refused.contains("`s::a` is there twice"), "{refused}");
}
