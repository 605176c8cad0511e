//! `cargo xtask unsafe-report`: how much unsafe code there is, and how much of it says why it
//! holds.

use std::ops::AddAssign;

use crate::{
    error::{Error, Verdict},
    table::{self, Align},
    tidy::{Count, Tree, count},
    workspace::Workspace,
};

/// Count the unsafe code of each crate, and the safety comments beside it.
///
/// `blocks` are unsafe blocks, impls and extern blocks: each claims that something holds.
/// `contracts` are unsafe functions and traits: each demands it of others. `explained` counts those
/// of both that say why, or what.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {}

impl Args {
    /// Prints a line for each crate with unsafe code, and the sum.
    pub(crate) fn run(&self, workspace: &Workspace) -> Result<Verdict, Error> {
        let tree = Tree::read(workspace)?;
        let mut sum = Count::default();
        let mut rows = Vec::new();
        for name in workspace.names() {
            let count = count_crate(&tree, &name);
            sum += count;
            if count != Count::default() {
                rows.push(row(&name, count));
            }
        }
        rows.push(row("all", sum));
        let aligns = [Align::Left, Align::Right, Align::Right, Align::Right];
        print!(
            "{}",
            table::render(
                &["crate", "blocks", "contracts", "explained"],
                &aligns,
                &rows
            )
        );
        Ok(Verdict::of(sum.explained == sum.blocks + sum.contracts))
    }
}

/// The unsafe code of the crate in the directory `name`.
fn count_crate(tree: &Tree<'_>, name: &str) -> Count {
    let mut sum = Count::default();
    let dir = format!("{name}/");
    for file in tree.ending("rs").filter(|file| file.path.starts_with(&dir)) {
        sum += count(&file.text);
    }
    sum
}

fn row(name: &str, count: Count) -> Vec<String> {
    let Count {
        blocks,
        contracts,
        explained,
    } = count;
    let mut cells = vec![name.to_owned()];
    cells.extend([blocks, contracts, explained].map(|n| n.to_string()));
    cells
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.blocks += other.blocks;
        self.contracts += other.contracts;
        self.explained += other.explained;
    }
}
