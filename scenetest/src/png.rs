//! A PNG writer for small pictures: 8-bit RGB, stored without compression, so that it needs no
//! library.

/// A picture as a PNG file. `pixel(x, y)` gives red, green and blue.
pub(crate) fn encode(width: u32, height: u32, pixel: impl Fn(u32, u32) -> [u8; 3]) -> Vec<u8> {
    let mut rows = Vec::with_capacity((width as usize * 3 + 1) * height as usize);
    for y in 0..height {
        // No filter for this row.
        rows.push(0);
        (0..width).for_each(|x| rows.extend_from_slice(&pixel(x, y)));
    }
    let mut header = Vec::with_capacity(13);
    header.extend_from_slice(&width.to_be_bytes());
    header.extend_from_slice(&height.to_be_bytes());
    // Eight bits, RGB, the one compression, the one filter method, not interlaced.
    header.extend_from_slice(&[8, 2, 0, 0, 0]);
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    chunk(&mut file, b"IHDR", &header);
    chunk(&mut file, b"IDAT", &stored(&rows));
    chunk(&mut file, b"IEND", &[]);
    file
}

fn chunk(file: &mut Vec<u8>, kind: &[u8; 4], content: &[u8]) {
    file.extend_from_slice(&(content.len() as u32).to_be_bytes());
    let begin = file.len();
    file.extend_from_slice(kind);
    file.extend_from_slice(content);
    let sum = crc32(&file[begin..]);
    file.extend_from_slice(&sum.to_be_bytes());
}

/// A zlib stream of stored blocks.
fn stored(bytes: &[u8]) -> Vec<u8> {
    const BLOCK: usize = 0xffff;
    let mut stream = vec![0x78, 0x01];
    let n_blocks = bytes.len().div_ceil(BLOCK).max(1);
    for nth in 0..n_blocks {
        let block = &bytes[nth * BLOCK..bytes.len().min((nth + 1) * BLOCK)];
        let length = block.len() as u16;
        stream.push(u8::from(nth + 1 == n_blocks));
        stream.extend_from_slice(&length.to_le_bytes());
        stream.extend_from_slice(&(!length).to_le_bytes());
        stream.extend_from_slice(block);
    }
    stream.extend_from_slice(&adler32(bytes).to_be_bytes());
    stream
}

fn adler32(bytes: &[u8]) -> u32 {
    let (mut a, mut b) = (1_u32, 0_u32);
    for &byte in bytes {
        a = (a + u32::from(byte)) % 65_521;
        b = (b + a) % 65_521;
    }
    b << 16 | a
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc: u32, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            let carry = (crc & 1).wrapping_neg();
            crc >> 1 ^ (0xedb8_8320 & carry)
        })
    })
}

#[cfg(test)]
mod tests;
