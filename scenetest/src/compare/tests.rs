//! The policy of comparisons, value by value.

use super::*;

fn floats(values: &[f32]) -> HostTensor {
    HostTensor::new(values, &[values.len()]).expect("made")
}

#[track_caller]
fn check(tolerance: Tolerance, actual: f32, expected: f32, right: bool) {
    let compared = compare("y", &floats(&[actual]), &floats(&[expected]), tolerance);
    let compared = compared.expect("comparable");
    assert_eq!(
        compared.wrong == 0,
        right,
        "{actual} for {expected}, {tolerance}"
    );
    assert_eq!(compared.elements, 1);
}

#[test]
fn tolerances_add_up() {
    check(Tolerance::EXACT, 1.0, 1.0, true);
    check(Tolerance::EXACT, 0.0, -0.0, true);
    check(Tolerance::EXACT, 1.0, 1.000_000_1, false);
    check(Tolerance::absolute(0.5), 10.0, 10.5, true);
    check(Tolerance::absolute(0.5), 10.0, 10.75, false);
    check(Tolerance::relative(0.25), 3.0, 4.0, true);
    check(Tolerance::relative(0.25), 0.1, 0.0, false);
    check(Tolerance::both(0.125, 0.25), 2.875, 4.0, true);
    check(Tolerance::both(0.125, 0.25), 2.75, 4.0, false);
}

#[test]
fn nan_is_wrong_unless_it_is_said_to_equal_nan() {
    let loose = Tolerance::both(f64::INFINITY, f64::INFINITY);
    for tolerance in [Tolerance::EXACT, loose] {
        check(tolerance, f32::NAN, f32::NAN, false);
        check(tolerance, f32::NAN, 1.0, false);
        check(tolerance, 1.0, f32::NAN, false);
    }
    let equal = Tolerance::EXACT.nan_equals_nan();
    check(equal, f32::NAN, f32::NAN, true);
    check(equal, f32::NAN, 1.0, false);
    check(equal, 1.0, f32::NAN, false);
}

#[test]
fn the_nan_of_an_output_that_nobody_wrote_is_not_the_expected_one() {
    let mut bytes = [0; 4];
    let reader = Reader::of(facade::DType::F32).expect("readable");
    reader.poison(&mut bytes);
    let equal = Tolerance::EXACT.nan_equals_nan();
    let poisoned = floats(&[f32::from_le_bytes(bytes)]);
    let compared = compare("y", &poisoned, &floats(&[f32::NAN]), equal).expect("comparable");
    assert_eq!((compared.wrong, compared.unwritten), (1, 1));
}

#[test]
fn an_infinity_equals_itself_alone() {
    for tolerance in [Tolerance::EXACT, Tolerance::relative(0.5)] {
        check(tolerance, f32::INFINITY, f32::INFINITY, true);
        check(tolerance, f32::NEG_INFINITY, f32::INFINITY, false);
        check(tolerance, 1.0, f32::INFINITY, false);
        check(tolerance, f32::INFINITY, 1.0, false);
    }
}

#[test]
fn the_report_has_counts_places_and_the_worst() {
    let expected: Vec<f32> = (0..20).map(|i| i as f32).collect();
    let mut actual = expected.clone();
    actual.iter_mut().skip(5).for_each(|value| *value += 1.0);
    actual[7] = 100.0;
    let shaped = |values: &[f32]| HostTensor::new(values, &[4, 5]).expect("made");
    let compared = compare("y", &shaped(&actual), &shaped(&expected), Tolerance::EXACT);
    let compared = compared.expect("comparable");
    assert_eq!(
        (compared.elements, compared.wrong, compared.first.len()),
        (20, 15, FIRST_MAX)
    );
    assert_eq!(compared.first[0].index, [1, 0]);
    let worst = compared.worst_absolute.as_ref().expect("some are wrong");
    assert_eq!(
        (&worst.index[..], worst.absolute),
        (&[1, 2][..], Some(93.0))
    );
    let text = compared.to_string();
    let begin = "output `y` [4, 5]: 15 of 20 elements wrong (75.00 %), exact, NaN is wrong\n  \
                 [1, 0]: 6.0, expected 5.0 (off by 1.000e0, relative 2.000e-1)\n";
    assert!(text.starts_with(begin), "{text}");
    assert!(text.contains("\n  ... and 7 more\n"), "{text}");
    let end = "\n  greatest absolute difference: [1, 2]: 100.0, expected 7.0 \
               (off by 9.300e1, relative 1.329e1)\n  greatest relative difference: [1, 2]: 100.0, \
               expected 7.0 (off by 9.300e1, relative 1.329e1)";
    assert!(text.ends_with(end), "{text}");
}

#[test]
fn unwritten_elements_are_counted_only_where_they_are_wrong() {
    let reader = Reader::of(DType::F32).expect("readable");
    let mut bytes = vec![0; 8];
    reader.poison(&mut bytes);
    let poisoned: Vec<f32> = bytes.chunks(4).map(bytemuck::pod_read_unaligned).collect();
    let compared = compare(
        "y",
        &floats(&poisoned),
        &floats(&[1.0, 2.0]),
        Tolerance::EXACT,
    );
    let compared = compared.expect("comparable");
    assert_eq!((compared.wrong, compared.unwritten), (2, 2));
    let ints = |value: i32| HostTensor::new(&[value], &[1]).expect("made");
    let pattern = i32::from_le_bytes([0xa5; 4]);
    let by_chance = compare("y", &ints(pattern), &ints(pattern), Tolerance::EXACT);
    assert_eq!(by_chance.expect("comparable").unwritten, 0);
}

#[test]
fn an_empty_output_is_compared_and_does_not_hold() {
    let empty = floats(&[]);
    let compared = compare("y", &empty, &empty, Tolerance::EXACT).expect("comparable");
    assert!(!compared.holds());
    assert!(compared.to_string().contains("nothing was compared"));
}

#[test]
fn a_comparison_survives_its_json() {
    let compared = compare(
        "y",
        &floats(&[f32::NAN, 1.0]),
        &floats(&[1.0, 0.0]),
        Tolerance::EXACT,
    );
    let compared = compared.expect("comparable");
    let json = serde_json::to_string(&compared).expect("no infinities in it");
    assert_eq!(
        serde_json::from_str::<Comparison>(&json).expect("the same"),
        compared
    );
}
