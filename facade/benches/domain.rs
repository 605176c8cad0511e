//! What a domain costs to set up, and what an all-reduce costs beside a plain copy of the same bytes.
//!
//! `cargo bench -p facade --bench domain -- [--json] [NAME...]`; see `docs/benches.md`.
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

use std::hint::black_box;
use std::time::Instant;

use facade::{AllReduce, Collectives, Error, Reduce, Symmetric, Worker, named};
use serde_json::{Value, json};

/// Rounds per measure; the median and the smallest are reported.
const ROUNDS: usize = 21;

fn main() -> Result<(), Error> {
    let (flags, names): (Vec<String>, Vec<String>) = std::env::args()
        .skip(1)
        .partition(|arg| arg.starts_with("--"));
    let wanted = |name: &str| names.is_empty() || names.iter().any(|wanted| wanted == name);
    let mut measures = Vec::new();
    if wanted("domain_setup") {
        measures.push(domain_setup(2)?);
        measures.push(domain_setup(8)?);
    }
    if wanted("allreduce") {
        measures.push(all_reduce(2, 16 << 20, AllReduce::Ring)?);
        measures.push(all_reduce(2, 4 << 10, AllReduce::OneShot)?);
        measures.push(all_reduce(4, 1 << 20, AllReduce::Ring)?);
    }
    if flags.iter().any(|flag| flag == "--json") {
        println!("{}", Value::Array(measures));
    } else {
        measures.iter().for_each(|measure| println!("{measure}"));
    }
    Ok(())
}

fn node(chips: u32) -> Result<(Worker, Collectives), Error> {
    let node = Worker::node().chips(chips).build()?;
    let collectives = node.register_collectives()?;
    node.init()?;
    Ok((node, collectives))
}

/// Allocating and releasing a domain with windows of 64 KiB, beside allocating and freeing as much on one chip.
fn domain_setup(chips: u32) -> Result<Value, Error> {
    let (node, _) = node(chips)?;
    let members: Vec<u32> = (0..chips).collect();
    let domain = || {
        let domain = node.allocate_domain("bench", &members, 64 << 10, &[])?;
        domain.release();
        Ok(())
    };
    let plain = || node.free(node.malloc::<u8>(0, 64 << 10)?);
    let (runs, reference) = in_turns(domain, plain)?;
    node.close()?;
    Ok(measure(
        &format!("domain_setup/chips={chips}"),
        &runs,
        "malloc_and_free",
        &reference,
    ))
}

/// An all-reduce of `bytes` per rank, beside one copy of as many bytes by this thread.
fn all_reduce(chips: u32, bytes: usize, how: AllReduce) -> Result<Value, Error> {
    let (node, collectives) = node(chips)?;
    let (members, elements): (Vec<u32>, usize) = ((0..chips).collect(), bytes / 4);
    let buffers = [named::<f32>("x", elements), named::<f32>("y", elements)];
    let domain = node.allocate_domain("bench", &members, 2 * bytes as u64, &buffers)?;
    let (x, y) = (domain.buffer::<f32>("x")?, domain.buffer::<f32>("y")?);
    fill(&node, &x)?;
    let (from, mut to) = (vec![1.0_f32; elements], vec![0.0_f32; elements]);
    let reduce = || node.run(|orch| collectives.all_reduce(orch, &x, &y, Reduce::Sum, how));
    let copy = || {
        black_box(&mut to).copy_from_slice(black_box(&from));
        Ok(())
    };
    let (runs, reference) = in_turns(reduce, copy)?;
    let mut sum = vec![0.0_f32; elements];
    node.copy_from(&mut sum, y[0])?;
    let expected = (chips * (chips + 1) / 2) as f32;
    assert!(sum.iter().all(|sum| *sum == expected), "the sum is wrong");
    node.close()?;
    let how = if how == AllReduce::Ring {
        "ring"
    } else {
        "one-shot"
    };
    Ok(measure(
        &format!("allreduce/chips={chips},bytes={bytes},{how}"),
        &runs,
        "memcpy",
        &reference,
    ))
}

fn fill(node: &Worker, x: &Symmetric<f32>) -> Result<(), Error> {
    for (rank, of) in x.iter().enumerate() {
        node.copy_to(of, &vec![(rank + 1) as f32; x.len()])?;
    }
    Ok(())
}

/// Times both in turns, after each was done twice; nanoseconds, sorted.
fn in_turns(
    mut of: impl FnMut() -> Result<(), Error>,
    mut reference: impl FnMut() -> Result<(), Error>,
) -> Result<(Vec<f64>, Vec<f64>), Error> {
    let (mut runs, mut references) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS + 2 {
        let began = Instant::now();
        of()?;
        let middle = Instant::now();
        reference()?;
        if round >= 2 {
            runs.push((middle - began).as_nanos() as f64);
            references.push(middle.elapsed().as_nanos() as f64);
        }
    }
    runs.sort_by(f64::total_cmp);
    references.sort_by(f64::total_cmp);
    Ok((runs, references))
}

fn measure(name: &str, runs: &[f64], reference_name: &str, reference: &[f64]) -> Value {
    json!({
        "name": name,
        "value": runs[runs.len() / 2],
        "unit": "ns",
        "min": runs[0],
        "runs": runs.len(),
        "reference": { "name": reference_name, "value": reference[reference.len() / 2] },
    })
}
