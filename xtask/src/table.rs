//! Plain text tables: columns as wide as their widest cell.

/// How the cells of a column stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// Renders a heading and rows; the columns beyond `aligns` are left-aligned. No trailing spaces.
pub(crate) fn render(heading: &[&str], aligns: &[Align], rows: &[Vec<String>]) -> String {
    let heading: Vec<String> = heading.iter().map(|&cell| cell.to_owned()).collect();
    let widths: Vec<usize> = (0..heading.len())
        .map(|column| {
            let cells = std::iter::once(&heading).chain(rows);
            cells
                .map(|row| row[column].chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for row in std::iter::once(&heading).chain(rows) {
        text.push_str(line(row, &widths, aligns).trim_end());
        text.push('\n');
    }
    text
}

fn line(row: &[String], widths: &[usize], aligns: &[Align]) -> String {
    let cells: Vec<String> = row
        .iter()
        .zip(widths)
        .enumerate()
        .map(|(column, (cell, &width))| match aligns.get(column) {
            Some(Align::Right) => format!("{cell:>width$}"),
            _ => format!("{cell:<width$}"),
        })
        .collect();
    cells.join("  ")
}

#[cfg(test)]
mod tests;
