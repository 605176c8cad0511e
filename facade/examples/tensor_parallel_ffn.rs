//! A feed-forward layer split over two chips: each holds half of the hidden units, and their partial results are summed
//! through one domain.
//!
//! ```text
//!            chip 0: h0 = relu(x W1[:, left])     y0 = h0 W2[top, :]    ─┐
//!  x ──────<                                                             ├─ all-reduce ─> y = relu(x W1) W2
//!            chip 1: h1 = relu(x W1[:, right])    y1 = h1 W2[bottom, :] ─┘
//! ```
//!
//! ```text
//! cargo run --release -p facade --example tensor_parallel_ffn -- --help
//! ```
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example talks to its user"
)]

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use facade::{
    AllReduce, Buffer, ChipArgs, ChipCallable, ChipHandle, ChipOrchestrator, Collectives,
    DeviceBuffer, Domain, Error, Kernel, KernelContext, KernelError, OrchestrationError,
    Orchestrator, Reduce, Worker, args, core_args, named, on,
};

/// Runs a feed-forward layer on two chips and compares it with the host.
#[derive(Debug, Parser)]
#[command(version)]
struct Options {
    /// Rows of the input.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    tokens: u32,
    /// Columns of the input and the output.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    model: u32,
    /// Hidden units of each chip.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    hidden: u32,
    /// How many layers' worth of runs.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
}

/// `out = relu(x W1) W2` of one chip's half: x, W1, W2, out, each as a matrix.
static HALF: ChipCallable = ChipCallable::new(
    "ffn half",
    half,
    &[
        Kernel::matrix("matmul", matmul),
        Kernel::vector("relu", relu),
    ],
);

fn half(orch: &mut ChipOrchestrator<'_>, args: &ChipArgs) -> Result<(), OrchestrationError> {
    let (x, w1, w2, out) = (
        args.tensor(0)?,
        args.tensor(1)?,
        args.tensor(2)?,
        args.tensor(3)?,
    );
    let hidden = orch.alloc(x.dtype(), &[x.shape()[0], w1.shape()[1]])?;
    orch.submit("matmul", core_args().input(x).input(w1).output(&hidden))?;
    orch.submit("relu", core_args().inout(&hidden))?;
    orch.submit("matmul", core_args().input(&hidden).input(w2).output(out))
        .map(drop)
}

fn matmul(cx: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let (inner, columns) = (cx.tensor(1)?.shape()[0], cx.tensor(1)?.shape()[1]);
    let (a, b, c) = (
        cx.input::<f32>(0)?,
        cx.input::<f32>(1)?,
        cx.output::<f32>(2)?,
    );
    multiply(a, b, c, inner as usize, columns as usize);
    Ok(())
}

fn relu(cx: &mut KernelContext<'_>) -> Result<(), KernelError> {
    cx.output::<f32>(0)?
        .iter_mut()
        .for_each(|x| *x = x.max(0.0));
    Ok(())
}

/// `c = a b`, row-major.
fn multiply(a: &[f32], b: &[f32], c: &mut [f32], inner: usize, columns: usize) {
    for (row, c) in a.chunks_exact(inner).zip(c.chunks_exact_mut(columns)) {
        c.fill(0.0);
        for (a, b) in row.iter().zip(b.chunks_exact(columns)) {
            c.iter_mut().zip(b).for_each(|(c, b)| *c += a * b);
        }
    }
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Small multiples of a quarter: every product and sum of them is exact.
fn values(n: usize, seed: usize) -> Vec<f32> {
    let value = |i: usize| ((i * 7 + seed * 13) % 9) as f32 / 4.0 - 1.0;
    (0..n).map(value).collect()
}

fn run(options: &Options) -> Result<(), Error> {
    let node = Worker::node().chips(2).build()?;
    let (half, sum) = (node.register_chip(&HALF)?, node.register_collectives()?);
    node.init()?;
    let (tokens, model, hidden) = (
        options.tokens as usize,
        options.model as usize,
        options.hidden as usize,
    );
    let layer = Layer {
        half,
        sum,
        weights: [
            resident(&node, 0, model, hidden)?,
            resident(&node, 1, model, hidden)?,
        ],
        x: node.buffer_from(&values(tokens * model, 4))?,
        shape: [tokens, model],
    };

    let began = Instant::now();
    let mut y = vec![0.0; tokens * model];
    for _ in 0..options.runs {
        layer.run(&node, &mut y)?;
    }
    let run_us = began.elapsed().as_secs_f64() * 1e6 / f64::from(options.runs);

    let expected = on_host(&layer.x.to_vec()?, tokens, model, hidden);
    let pairs = y.iter().zip(&expected);
    let wrong = pairs.filter(|(y, expected)| y != expected);
    println!(
        "{tokens} tokens, {model} columns, 2 x {hidden} hidden units: {} of {} results differ from the host",
        wrong.clone().count(),
        y.len()
    );
    println!("{run_us:.1} us per run, the domain's allocation included");
    print!("{}", node.memory_report()?);
    if let Some((found, expected)) = wrong.clone().next() {
        let text = format!("found {found}, expected {expected}");
        return Err(Error::orchestration(text));
    }
    node.close()
}

/// The layer as it lies on the two chips.
struct Layer {
    half: ChipHandle,
    sum: Collectives,
    /// Of each chip: its columns of W1 and its rows of W2.
    weights: [[DeviceBuffer<f32>; 2]; 2],
    x: Buffer<f32>,
    /// Of the input and the output: tokens and columns.
    shape: [usize; 2],
}

/// The weights of a chip's half; they stay there.
fn resident(
    node: &Worker,
    chip: u32,
    model: usize,
    hidden: usize,
) -> Result<[DeviceBuffer<f32>; 2], Error> {
    let matrix = |rows: usize, columns: usize, seed: usize| {
        let w = node.malloc::<f32>(chip, rows * columns)?;
        node.copy_to(w, &values(rows * columns, seed))?;
        w.reshape(&[rows, columns])
    };
    let seed = 2 * chip as usize;
    Ok([
        matrix(model, hidden, seed)?,
        matrix(hidden, model, seed + 1)?,
    ])
}

impl Layer {
    /// Computes `y`, which both chips must have got alike.
    fn run(&self, node: &Worker, y: &mut [f32]) -> Result<(), Error> {
        let domain = node.run(|orch| self.submit(orch))?;
        let out = domain.buffer::<f32>("y")?;
        let mut other = vec![0.0; y.len()];
        node.copy_from(y, out[0])?;
        node.copy_from(&mut other, out[1])?;
        if *y != other {
            return Err(Error::orchestration("the chips have different results"));
        }
        domain.release();
        Ok(())
    }

    /// A domain with the partial results of both chips, and their sum in the place of both.
    fn submit(&self, orch: &mut Orchestrator<'_>) -> Result<Domain, Error> {
        let n = self.shape[0] * self.shape[1];
        let buffers = [named::<f32>("y", n)];
        let domain = orch.allocate_domain("layer", &[0, 1], (n * 4) as u64, &buffers)?;
        domain.retain_after_run(); // the result is read after the run
        let out = domain.buffer::<f32>("y")?;
        for (chip, [w1, w2]) in (0..).zip(&self.weights) {
            let list = args()
                .input(&self.x.reshape(&self.shape)?)
                .input(w1)
                .input(w2)
                .output(&out[chip as usize].reshape(&self.shape)?);
            orch.submit_next_level(&self.half, list, on(chip))?;
        }
        self.sum
            .all_reduce(orch, &out, &out, Reduce::Sum, AllReduce::Ring)?;
        Ok(domain)
    }
}

/// The same layer in one piece.
fn on_host(x: &[f32], tokens: usize, model: usize, hidden: usize) -> Vec<f32> {
    let mut y = vec![0.0; tokens * model];
    for chip in 0..2 {
        let mut h = vec![0.0; tokens * hidden];
        multiply(x, &values(model * hidden, 2 * chip), &mut h, model, hidden);
        h.iter_mut().for_each(|h| *h = h.max(0.0));
        let mut part = vec![0.0; tokens * model];
        multiply(
            &h,
            &values(hidden * model, 2 * chip + 1),
            &mut part,
            hidden,
            model,
        );
        y.iter_mut().zip(part).for_each(|(y, part)| *y += part);
    }
    y
}
