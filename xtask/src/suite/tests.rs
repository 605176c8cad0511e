//! What the heads of examples say.

use super::Instruction;

#[track_caller]
fn check(head: &str, expected: Instruction) {
    assert_eq!(Instruction::parse(head), expected);
}

fn run(args: &[&str]) -> Instruction {
    Instruction::Run(args.iter().map(|&arg| arg.to_owned()).collect())
}

#[test]
fn an_example_without_instruction_runs_without_arguments() {
    check("//! Adds vectors.\n\nfn main() {}\n", run(&[]));
    check("fn main() {}\n", run(&[]));
}

#[test]
fn arguments_come_from_the_head() {
    check(
        "//! Adds.\n//!\n//! xtask: run with --n 3 -v\n",
        run(&["--n", "3", "-v"]),
    );
}

#[test]
fn a_skip_gives_its_reason() {
    check(
        "//! xtask: skip (needs a chip)\n",
        Instruction::Skip("needs a chip".to_owned()),
    );
}

#[test]
fn only_the_head_counts() {
    check("//! Adds.\nuse std;\n//! xtask: skip (no)\n", run(&[]));
}
