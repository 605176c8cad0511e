//! Whether a model fits in the memory of this machine: better refused than killed half way.

use super::config::Config;

/// What the program takes besides weights and cache: copies on their way to the chip, a step of the reference.
const BESIDES: u64 = 512 << 20;

/// Refuses a model that there is no room for.
pub(crate) fn check(name: &str, config: &Config, cache_bytes: u64) -> Result<(), String> {
    match available() {
        Some(available) => fits(name, config, cache_bytes, available),
        // Nobody says how much there is; so nothing can be said against it.
        None => Ok(()),
    }
}

/// The same, where so many bytes are free.
pub(crate) fn fits(
    name: &str,
    config: &Config,
    cache_bytes: u64,
    available: u64,
) -> Result<(), String> {
    let needed = |layers: usize| {
        let config = Config {
            num_hidden_layers: layers,
            ..config.clone()
        };
        config.weight_bytes() + cache_bytes + BESIDES
    };
    let layers = config.num_hidden_layers;
    if needed(layers) <= available {
        return Ok(());
    }
    let most = (1..layers)
        .rev()
        .find(|&layers| needed(layers) <= available);
    let advice = most.map_or("not even one would fit".to_owned(), |most| {
        format!("--layers {most} would fit")
    });
    let gb = |bytes: u64| bytes as f64 / 1e9;
    Err(format!(
        "decode with {name}: {layers} layers need {:.1} GB of memory, {:.1} GB are free; {advice}",
        gb(needed(layers)),
        gb(available)
    ))
}

/// Bytes that can be taken without swapping, by this machine and by the group that the process is limited with.
fn available() -> Option<u64> {
    let machine = of_machine(&std::fs::read_to_string("/proc/meminfo").ok()?)?;
    let group = |file: &str| {
        let text = std::fs::read_to_string(format!("/sys/fs/cgroup/{file}")).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let of_group = group("memory.max").zip(group("memory.current"));
    let of_group = of_group.map_or(u64::MAX, |(max, current)| max.saturating_sub(current));
    Some(machine.min(of_group))
}

/// What `/proc/meminfo` says is available.
pub(crate) fn of_machine(meminfo: &str) -> Option<u64> {
    let mut lines = meminfo.lines();
    let line = lines.find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}
