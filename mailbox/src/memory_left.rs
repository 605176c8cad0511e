//! Whether the machine has the memory that is asked for, before it is taken page by page.

use crate::segment::SegmentError;

/// The kernel backs a memfd page by page until memory has run out, and then kills somebody. A request
/// that cannot succeed is refused before it starts.
pub(crate) fn refuse_hopeless(wanted: usize) -> Result<(), SegmentError> {
    const WORTH_ASKING: usize = 64 << 20;
    if wanted < WORTH_ASKING {
        return Ok(());
    }
    let Ok(meminfo) = std::fs::read_to_string("/proc/meminfo") else {
        return Ok(());
    };
    match available_bytes(&meminfo) {
        Some(available) if (wanted as u64) > available => Err(SegmentError::OutOfMemory {
            wanted,
            source: std::io::Error::other(format!("{available} bytes are available")),
        }),
        _ => Ok(()),
    }
}

/// Memory that could be had without killing anybody: available plus free swap.
fn available_bytes(meminfo: &str) -> Option<u64> {
    let kib = |key: &str| -> Option<u64> {
        let line = meminfo.lines().find_map(|l| l.strip_prefix(key))?;
        line.trim().trim_end_matches("kB").trim().parse().ok()
    };
    Some(
        kib("MemAvailable:")?
            .saturating_add(kib("SwapFree:").unwrap_or(0))
            .saturating_mul(1024),
    )
}
