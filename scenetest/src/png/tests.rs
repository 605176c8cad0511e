//! Sums against their published check values, and the parts of a file.

use super::*;

#[test]
fn the_sums_are_the_published_ones() {
    assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    assert_eq!(adler32(b"Wikipedia"), 0x11e6_0398);
    // The chunk that ends every PNG file.
    assert_eq!(crc32(b"IEND"), 0xae42_6082);
}

#[test]
fn a_picture_has_its_pixels_row_by_row() {
    let file = encode(2, 2, |x, y| [x as u8, y as u8, 9]);
    assert_eq!(&file[..8], b"\x89PNG\r\n\x1a\n");
    assert_eq!(&file[12..16], b"IHDR");
    assert_eq!(&file[16..24], &[0, 0, 0, 2, 0, 0, 0, 2]);
    let rows = [0, 0, 0, 9, 1, 0, 9, 0, 0, 1, 9, 1, 1, 9];
    let found = file.windows(rows.len()).any(|window| window == rows);
    assert!(found, "the rows stand in the file as they are");
}

#[test]
fn long_pictures_take_several_blocks() {
    let stream = stored(&vec![7; 70_000]);
    assert_eq!(stream[2], 0, "not the last block");
    assert_eq!(&stream[3..5], &0xffff_u16.to_le_bytes());
    assert_eq!(stream[7 + 0xffff], 1, "the last block");
    assert_eq!(stream.len(), 2 + 2 * 5 + 70_000 + 4);
}
