//! Entries appear whole, are noted as used, and go when nobody used them for long.

use super::*;

fn cache() -> (tempfile::TempDir, Cache) {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::new(dir.path().join("cache"));
    (dir, cache)
}

fn publish(cache: &Cache, content: &str) -> PathBuf {
    let staged = cache.stage("so").unwrap();
    fs::write(&staged, content).unwrap();
    cache
        .publish(staged, Digest::of(content.as_bytes()), "so")
        .unwrap()
}

fn age(path: &Path, by: Duration) {
    let file = File::options().append(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - by).unwrap();
}

#[test]
fn an_entry_is_found_by_digest_and_extension_after_it_is_published() {
    let (_dir, cache) = cache();
    let digest = Digest::of(b"one");
    assert_eq!(cache.find(digest, "so"), None);
    let path = publish(&cache, "one");
    assert_eq!(cache.find(digest, "so"), Some(path));
    assert_eq!(cache.find(digest, "o"), None);
}

#[test]
fn what_is_staged_and_not_published_disappears() {
    let (_dir, cache) = cache();
    let staged = cache.stage("so").unwrap().to_path_buf();
    assert!(!staged.exists());
}

#[test]
fn what_nobody_used_for_two_weeks_goes_and_what_was_used_stays() {
    let (_dir, cache) = cache();
    let day = Duration::from_secs(24 * 60 * 60);
    let [old, used] = ["old", "used"].map(|content| {
        let path = publish(&cache, content);
        age(&path, 15 * day);
        path
    });
    assert!(
        cache.find(Digest::of(b"used"), "so").is_some(),
        "notes the use"
    );
    let new = publish(&cache, "new");
    assert!(!old.exists());
    assert!(used.exists() && new.exists());
}

/// The directory may be a home or a project: only what the cache has named goes.
#[test]
fn old_files_that_the_cache_did_not_name_stay() {
    let (_dir, cache) = cache();
    let day = Duration::from_secs(24 * 60 * 60);
    let entry = publish(&cache, "old");
    let digest = Digest::of(b"a stranger's");
    let strangers = [
        "thesis.tex".to_owned(),
        "libother.so".to_owned(),
        "main.o".to_owned(),
        "staged-changes.o".to_owned(),
        format!("{digest}"),
        format!("{digest}.txt"),
        format!("{digest:#}.so"),
        format!("{digest}0.so"),
    ]
    .map(|name| entry.with_file_name(name));
    let staged = entry.with_file_name("staged-Ab3xYz.so");
    for path in strangers.iter().chain([&staged]) {
        fs::write(path, "kept").unwrap();
        age(path, 400 * day);
    }
    age(&entry, 15 * day);
    publish(&cache, "new");
    let gone = |path: &&PathBuf| !path.exists();
    assert_eq!(strangers.iter().find(gone), None);
    assert!(!entry.exists(), "an entry that nobody used goes");
    assert!(!staged.exists(), "what a crash left goes");
}

#[test]
fn the_header_is_written_once_and_whole() {
    let (_dir, cache) = cache();
    let dir = cache.header_dir().unwrap();
    assert_eq!(
        fs::read_to_string(dir.join("device_kernel.h")).unwrap(),
        HEADER
    );
    assert_eq!(cache.header_dir().unwrap(), dir);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
}
