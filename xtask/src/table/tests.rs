//! Tables as they are printed.

use super::{Align, render};

#[test]
fn columns_are_as_wide_as_their_widest_cell_and_lines_end_without_spaces() {
    let rows =
        [["a", "1.0", ""], ["long", "10.0", "why"]].map(|row| row.map(str::to_owned).to_vec());
    let text = render(&["step", "s", "note"], &[Align::Left, Align::Right], &rows);
    assert_eq!(text, "step     s  note\na      1.0\nlong  10.0  why\n");
}
