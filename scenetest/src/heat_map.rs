//! Heat maps: where a two-dimensional output is off, as a picture.
//!
//! One pixel for each element, or for the worst of a tile where there are more than [`SIDE_MAX`]
//! rows or columns. Dark is right; from blue over red to yellow the difference rises to the worst of
//! this output, by its logarithm; white is not a number.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::png;
use crate::tensor::HostTensor;
use crate::value::Reader;

/// The most pixels of a side.
const SIDE_MAX: usize = 1024;
/// Differences below this share of the worst one are shown in the coldest color.
const DECADES: f64 = 6.0;

/// Writes the picture of an output, if it has two dimensions; returns where.
pub(crate) fn write(
    dir: &Path,
    case: &str,
    name: &str,
    actual: &HostTensor,
    expected: &HostTensor,
) -> io::Result<Option<PathBuf>> {
    let [rows, columns] = *actual.shape() else {
        return Ok(None);
    };
    let Some(reader) = Reader::of(actual.dtype()).filter(|_| rows * columns > 0) else {
        return Ok(None);
    };
    let element =
        |bytes: &[u8], at: usize| reader.value(&bytes[at * reader.bytes..][..reader.bytes]);
    let off = |at: usize| {
        let (actual, expected) = (
            element(actual.as_bytes(), at),
            element(expected.as_bytes(), at),
        );
        actual.distance(expected).unwrap_or(f64::NAN)
    };
    let tile = rows.max(columns).div_ceil(SIDE_MAX);
    let worst_of = |x: usize, y: usize| {
        let (below, right) = ((y + 1) * tile, (x + 1) * tile);
        let places = (y * tile..below.min(rows)).flat_map(|row| {
            (x * tile..right.min(columns)).map(move |column| row * columns + column)
        });
        places.map(off).fold(0.0, worse)
    };
    let worst = (0..rows * columns).map(off).filter(|off| off.is_finite());
    let worst = worst.fold(0.0, f64::max);
    let (width, height) = (columns.div_ceil(tile), rows.div_ceil(tile));
    let picture = png::encode(width as u32, height as u32, |x, y| {
        color(worst_of(x as usize, y as usize), worst)
    });
    fs::create_dir_all(dir)?;
    let file = format!("{}.{name}.png", case.replace("::", "."));
    let path = dir.join(file.replace('/', "_"));
    fs::write(&path, picture)?;
    Ok(Some(path))
}

/// What is no number is worse than any number.
fn worse(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        f64::NAN
    } else {
        a.max(b)
    }
}

fn color(off: f64, worst: f64) -> [u8; 3] {
    if !off.is_finite() {
        return [255, 255, 255];
    }
    if off == 0.0 {
        return [16, 16, 24];
    }
    // 0 for the coldest, 1 for the worst.
    let heat = (1.0 + (off / worst).log10() / DECADES).clamp(0.0, 1.0);
    let part = |from: f64, to: f64| (from + (to - from) * (heat * 2.0 % 1.0)) as u8;
    if heat < 0.5 {
        [part(32.0, 220.0), part(64.0, 32.0), part(200.0, 48.0)]
    } else if heat < 1.0 {
        [part(220.0, 255.0), part(32.0, 230.0), part(48.0, 64.0)]
    } else {
        [255, 230, 64]
    }
}

#[cfg(test)]
mod tests;
