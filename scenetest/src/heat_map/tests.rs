//! Which pixel has which color.

use super::*;

fn tensor(values: &[f32], shape: &[usize]) -> HostTensor {
    HostTensor::new(values, shape).expect("it fits")
}

#[test]
fn the_picture_shows_where_it_is_off() {
    let dir = tempfile::tempdir().expect("a directory");
    let expected = tensor(&[0.0; 6], &[2, 3]);
    let actual = tensor(&[0.0, 1.0, 0.0, f32::NAN, 0.0, 1e-3], &[2, 3]);
    let path = write(dir.path(), "s::c", "z", &actual, &expected).expect("it is writable");
    let path = path.expect("it has two dimensions");
    assert_eq!(
        path.file_name().and_then(|name| name.to_str()),
        Some("s.c.z.png")
    );
    let file = fs::read(path).expect("it is there");
    let (right, worst, nan) = ([16, 16, 24], [255, 230, 64], [255, 255, 255]);
    let mut rows = vec![0];
    rows.extend([right, worst, right].concat());
    rows.push(0);
    rows.extend([nan, right].concat());
    assert!(file.windows(rows.len()).any(|window| window == rows));
}

#[test]
fn outputs_of_other_ranks_have_no_picture() {
    let dir = tempfile::tempdir().expect("a directory");
    let flat = tensor(&[1.0; 4], &[4]);
    let none = write(dir.path(), "s::c", "z", &flat, &flat).expect("nothing to write");
    assert_eq!(none, None);
}

#[test]
fn colors_rise_with_the_difference_and_large_outputs_are_tiled() {
    let cold = color(1e-9, 1.0);
    assert_eq!(cold, [32, 64, 200]);
    assert!(color(1e-2, 1.0)[0] > color(1e-5, 1.0)[0]);
    let dir = tempfile::tempdir().expect("a directory");
    let mut values = vec![0.0_f32; 3 * 2500];
    values[2499] = 1.0;
    let (actual, expected) = (
        tensor(&values, &[3, 2500]),
        tensor(&[0.0; 3 * 2500], &[3, 2500]),
    );
    let path = write(dir.path(), "s::c", "z", &actual, &expected).expect("writable");
    let file = fs::read(path.expect("two dimensions")).expect("it is there");
    let size: Vec<u32> = file[16..24]
        .chunks(4)
        .map(|n| u32::from_be_bytes([n[0], n[1], n[2], n[3]]))
        .collect();
    assert_eq!(size, [834, 1], "tiles of three");
    let last = [255, 230, 64];
    assert!(
        file.windows(3).any(|window| window == last),
        "the one that is off shows"
    );
}
