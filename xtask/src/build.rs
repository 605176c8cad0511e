//! `cargo xtask build`: the workspace, and the kernels for a platform.

use clap::ValueEnum;

use crate::{
    cargo,
    delegate::{Kind, Program},
    doctor::vendor,
    error::{Error, Verdict},
    report::Report,
    workspace::Workspace,
};

/// Build the workspace and the kernels for a platform.
///
/// Whatever can be built is built. A compiler or library that the platform needs and this machine
/// lacks is named, and then the exit code is 1.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// What to build for.
    #[arg(long, value_enum)]
    platform: Platform,
}

/// A platform to build for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Platform {
    /// The simulator; needs a C compiler for kernels in C.
    Sim,
    /// Ascend a2a3; needs the vendor's toolkit.
    A2a3,
    /// Ascend a5; needs the vendor's toolkit.
    A5,
}

/// Compiles the kernels of this repository: `compile_kernels --platform NAME`.
const COMPILE_KERNELS: Program = Program {
    package: "device",
    kind: Kind::Example,
    name: "compile_kernels",
};

impl Args {
    /// Builds what can be built.
    pub(crate) fn run(&self, workspace: &Workspace) -> Result<Verdict, Error> {
        let mut report = Report::with_sweep();
        let args = ["build", "--workspace", "--release"];
        report.run(cargo::step(workspace, "workspace", 1200, args));
        match self.platform {
            Platform::Sim => self.kernels(&mut report, workspace),
            Platform::A2a3 | Platform::A5 => self.vendor(&mut report, workspace),
        }
        Ok(report.finish())
    }

    /// Names each part of the toolkit that is missing; compiles the kernels if the compiler is
    /// there.
    fn vendor(&self, report: &mut Report, workspace: &Workspace) {
        if let Err(how) = vendor::library("libascendcl.so") {
            report.fail(
                "libascendcl.so",
                format!("{how}; set ASCEND_HOME_PATH, or use `sim`"),
            );
        }
        match vendor::compiler() {
            Ok(_) => self.kernels(report, workspace),
            Err(how) => report.fail("ccec", format!("{how}; set ASCEND_HOME_PATH, or use `sim`")),
        }
    }

    fn kernels(&self, report: &mut Report, workspace: &Workspace) {
        let platform = self.platform.to_possible_value();
        let platform = platform.map_or_else(String::new, |value| value.get_name().to_owned());
        let name = format!("kernels for {platform}");
        if !COMPILE_KERNELS.exists(workspace) {
            return report.fail(name, "device has no example `compile_kernels` yet");
        }
        let mut step = cargo::step(workspace, name, 600, COMPILE_KERNELS.cargo_run());
        step.command.args(["--", "--platform", &platform]);
        report.run(step);
    }
}
