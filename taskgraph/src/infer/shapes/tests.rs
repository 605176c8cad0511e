//! Shapes are shared, counted, and never taken for one another.

use super::Shapes;
use crate::buffer::{BufferId, BufferKind};
use crate::dtype::DType;
use crate::tensor::Tensor;
use crate::view::View;

fn tile(row: u64, column: u64, height: u64, width: u64) -> View {
    let buffer = BufferId::new(1, 1, 0, BufferKind::Shared);
    let matrix = Tensor::contiguous(buffer, DType::U8, &[64, 64], 4096).unwrap();
    let rows = matrix.slice(0, row..row + height).unwrap();
    rows.slice(1, column..column + width).unwrap().view()
}

#[test]
fn tiles_of_one_form_share_a_shape() {
    let mut shapes = Shapes::default();
    let all: Vec<_> = (0..60).map(|at| shapes.add(&tile(at, at, 4, 4))).collect();
    assert!(all.iter().all(|shape| *shape == all[0]));
    assert_eq!(shapes.len(), 1);
    all.into_iter().for_each(|shape| shapes.remove(shape));
    assert_eq!(shapes.len(), 0);
}

#[test]
fn a_shape_that_nobody_has_is_not_taken_for_a_new_one() {
    let mut shapes = Shapes::default();
    let first = shapes.add(&tile(0, 0, 4, 4));
    shapes.remove(first);
    let other = shapes.add(&tile(0, 0, 2, 2));
    let again = shapes.add(&tile(8, 8, 4, 4));
    assert_ne!(other, again);
    assert_eq!(
        shapes.get(again).unwrap().moved_to(8 * 65),
        tile(8, 8, 4, 4)
    );
    assert_eq!(shapes.get(other).unwrap().moved_to(0), tile(0, 0, 2, 2));
}

#[test]
fn shapes_of_all_kinds_are_what_was_added() {
    let mut shapes = Shapes::default();
    let forms = (1..9).flat_map(|height| (1..9).map(move |width| (height + 1, width)));
    let added: Vec<_> = forms
        .cycle()
        .take(1000)
        .map(|(height, width)| (shapes.add(&tile(3, 5, height, width)), height, width))
        .collect();
    for (shape, height, width) in &added {
        let view = shapes.get(*shape).unwrap().moved_to(3 * 64 + 5);
        assert_eq!(view, tile(3, 5, *height, *width));
    }
    added.iter().for_each(|added| shapes.remove(added.0));
    assert_eq!(shapes.len(), 0);
}
