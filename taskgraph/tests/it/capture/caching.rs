//! The cache: bounds, counters, one recording per key, and files.

use taskgraph::capture::{
    Cache, CacheCounters, CacheLimits, FileError, Lookup, MismatchKind, decode_file, encode_file,
};

use super::*;

fn made() -> Arc<Definition> {
    definition(
        &[(1, Tag::InOut)],
        &[&[(1, Tag::InOut)], &[(1, Tag::Input)]],
    )
}

/// A cache of so many entries, and as many bytes as they need.
fn cache(entries_max: usize) -> Cache<u64, ()> {
    let bytes_max = entries_max * made().bytes();
    Cache::new(CacheLimits {
        entries_max,
        bytes_max,
    })
}

/// One call of a key, as whoever uses the cache makes it. Says whether it was recorded.
fn call(cache: &mut Cache<u64, ()>, key: u64) -> bool {
    match cache.lookup(&key) {
        Lookup::Ready(_) => cache.hit(),
        Lookup::Record => {
            cache.recorded(&key, made(), ());
            return true;
        }
        other => panic!("{other:?}"),
    }
    false
}

fn counters(hits: u64, recorded: u64, evicted: u64) -> CacheCounters {
    let mut expected = CacheCounters::default();
    (expected.hits, expected.recorded, expected.evicted) = (hits, recorded, evicted);
    expected
}

#[test]
fn a_thousand_keys_stay_within_entries_and_bytes() {
    let mut cache = cache(16);
    for key in 0..1000 {
        assert!(call(&mut cache, key));
        assert!(cache.len() <= 16 && cache.bytes() <= 16 * made().bytes());
    }
    assert_eq!(cache.counters(), counters(0, 1000, 984));
}

#[test]
fn bytes_bound_the_cache_too() {
    let bytes_max = 3 * made().bytes() - 1;
    let mut cache = Cache::new(CacheLimits {
        entries_max: 100,
        bytes_max,
    });
    (0..5).for_each(|key| assert!(call(&mut cache, key)));
    assert_eq!((cache.len(), cache.bytes()), (2, 2 * made().bytes()));
    let mut tiny = Cache::new(CacheLimits {
        entries_max: 100,
        bytes_max: 1,
    });
    assert!(call(&mut tiny, 1), "it is recorded and used, and not kept");
    assert_eq!(
        (tiny.len(), tiny.bytes(), tiny.counters().evicted),
        (0, 0, 1)
    );
}

#[test]
fn counters_are_exact_when_one_key_too_many_goes_round() {
    let mut cache = cache(16);
    for _ in 0..20 {
        (0..17)
            .for_each(|key| assert!(call(&mut cache, key), "least recently used is the next one"));
    }
    assert_eq!(cache.counters(), counters(0, 340, 324));
    // Of 16 keys in use none is dropped for a stranger but the oldest.
    for _ in 0..3 {
        (1..17).for_each(|key| assert!(!call(&mut cache, key)));
    }
    assert!(call(&mut cache, 99));
    assert!(!call(&mut cache, 2));
    assert!(call(&mut cache, 1), "an evicted key starts cold");
}

#[test]
fn one_key_is_recorded_once_whoever_asks() {
    let mut cache = cache(4);
    assert!(matches!(cache.lookup(&1), Lookup::Record));
    assert!(matches!(cache.lookup(&1), Lookup::Busy));
    assert!(
        matches!(cache.lookup(&2), Lookup::Record),
        "others are not held up"
    );
    let cached = cache.recorded(&1, made(), ());
    assert!(matches!(cache.lookup(&1), Lookup::Ready(found) if Arc::ptr_eq(&found, &cached)));
    assert!(matches!(cache.lookup(&2), Lookup::Busy));
}

#[test]
fn what_is_being_recorded_is_not_dropped() {
    let mut cache = cache(2);
    assert!(matches!(cache.lookup(&1), Lookup::Record));
    (10..20).for_each(|key| assert!(call(&mut cache, key)));
    assert!(matches!(cache.lookup(&1), Lookup::Busy));
}

#[test]
fn an_abandoned_recording_leaves_nothing() {
    let mut cache = cache(2);
    assert!(matches!(cache.lookup(&1), Lookup::Record));
    cache.abandoned(&1);
    assert!(cache.is_empty());
    assert!(call(&mut cache, 1));
    cache.abandoned(&1);
    assert!(!call(&mut cache, 1), "only a recording can be abandoned");
}

#[test]
fn a_refused_key_is_counted_at_every_call() {
    let mut cache = cache(2);
    let reason = NotRecordable::OutsideTask { node: 3 };
    assert!(matches!(cache.lookup(&1), Lookup::Record));
    cache.refused(&1, reason);
    for _ in 0..2 {
        assert!(matches!(cache.lookup(&1), Lookup::Uncacheable(found) if found == reason));
    }
    assert_eq!(cache.counters().uncacheable, 3);
    (10..12).for_each(|key| assert!(call(&mut cache, key)));
    assert!(
        matches!(cache.lookup(&1), Lookup::Record),
        "it was dropped like any other"
    );
}

#[test]
fn a_mismatch_is_counted_every_time_and_told_once_per_kind() {
    let mut cache = cache(2);
    let first: Vec<_> = [
        MismatchKind::Shape,
        MismatchKind::Shape,
        MismatchKind::Overlap,
    ]
    .map(|kind| cache.mismatch(kind))
    .into();
    assert_eq!(first, [true, false, true]);
    assert_eq!(cache.counters().mismatches, 3);
}

#[test]
fn what_is_too_large_to_be_kept_drops_nothing_else() {
    let mut cache = cache(2);
    (0..2).for_each(|key| assert!(call(&mut cache, key)));
    let tasks: Vec<&[(u64, Tag)]> = vec![&[(1, Tag::InOut)]; 1000];
    let large = definition(&[(1, Tag::InOut)], &tasks);
    assert!(large.bytes() > 2 * made().bytes());
    for n_calls in 1..3 {
        assert!(matches!(cache.lookup(&9), Lookup::Record));
        cache.recorded(&9, Arc::clone(&large), ());
        assert_eq!(cache.counters().evicted, n_calls);
    }
    (0..2).for_each(|key| assert!(!call(&mut cache, key)));
    assert_eq!((cache.len(), cache.bytes()), (2, 2 * made().bytes()));
}

#[test]
fn an_evicted_definition_lives_as_long_as_its_replay() {
    let mut graph = Scheduler::default();
    graph.add_worker(WorkerKind::NextLevel, Depth::One).unwrap();
    let run = graph.begin_run();
    let mut cache = cache(1);
    assert!(matches!(cache.lookup(&1), Lookup::Record));
    let cached = cache.recorded(&1, made(), ());
    let weak = Arc::downgrade(&cached.definition);
    let boundary = args(&[(7, Tag::InOut)]);
    graph
        .submit_graph(run, &cached.definition.bind(&boundary, &[]).unwrap())
        .unwrap();
    drop(cached);
    let first = graph.next_dispatch().unwrap();
    assert!(call(&mut cache, 2));
    graph.completed(first.dispatch, Outcome::Ok).unwrap();
    let second = graph.next_dispatch().expect("the second node");
    assert_eq!(graph.node_of(second.task).map(|(_, node)| node), Some(1));
    graph.completed(second.dispatch, Outcome::Ok).unwrap();
    assert!(weak.upgrade().is_none(), "nobody needs it any more");
}

#[test]
fn a_file_gives_back_what_was_saved_to_the_same_build_only() {
    let mut cache = cache(4);
    (1..4).for_each(|key| assert!(call(&mut cache, key)));
    let entries = cache
        .definitions()
        .map(|(key, cached)| (vec![*key as u8; *key as usize], &*cached.definition));
    let file = encode_file(b"build 1", "2 chips", entries);
    let read = decode_file(b"build 1", "2 chips", &file).unwrap();
    let keys: Vec<_> = read.iter().map(|(key, _)| key.clone()).collect();
    assert_eq!(keys, [vec![1], vec![2, 2], vec![3, 3, 3]]);
    let mut other = self::cache(2);
    for (key, definition) in read {
        assert_eq!(definition, *made());
        other.restore(u64::from(key[0]), definition, ());
    }
    assert!(
        !call(&mut other, 3) && !call(&mut other, 2),
        "the most recently used are kept"
    );
    assert!(call(&mut other, 1));
    assert_eq!(
        decode_file(b"build 2", "2 chips", &file).unwrap_err(),
        FileError::OtherBuild
    );
    let other = decode_file(b"build 1", "1 chips", &file).unwrap_err();
    let wanted = "the file of definitions was recorded with other workers (2 chips, here 1 chips); record again";
    assert_eq!(other.to_string(), wanted);
}

#[test]
fn a_damaged_file_is_refused_whole() {
    let definition = made();
    let file = encode_file(b"id", "", [(vec![1, 2, 3], &*definition)]);
    for at in 0..file.len() {
        let mut damaged = file.clone();
        damaged[at] ^= 16;
        assert!(decode_file(b"id", "", &damaged).is_err(), "byte {at}");
        assert!(decode_file(b"id", "", &file[..at]).is_err(), "{at} bytes");
    }
}
