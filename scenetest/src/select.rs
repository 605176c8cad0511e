//! Which cases run: every scene is looked at, each case is selected at most once, and a filter that
//! matches nothing is an error.

use std::collections::{HashMap, HashSet};
use std::io;
use std::panic::Location;
use std::path::PathBuf;

use facade::Platform;

use crate::args::Args;
use crate::golden::Updates;
use crate::limits::Ladder;
use crate::scene::{Case, Scene};

/// A case with its scene.
#[derive(Clone, Debug)]
pub(crate) struct Candidate<'s> {
    pub(crate) scene: &'s Scene,
    pub(crate) case: Case,
    /// `scene::case`.
    pub(crate) name: String,
}

/// A selected case, and why it is not to be run, if that is known already.
#[derive(Clone, Debug)]
pub(crate) struct Selected<'s> {
    pub(crate) candidate: Candidate<'s>,
    pub(crate) skip: Option<String>,
    /// Whether its golden file is to be rewritten.
    pub(crate) update_golden: bool,
}

/// Scenes or filters that make no session.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SelectError {
    #[error("collect scenes: `{name}` is there twice, at {first} and at {second}")]
    Twice {
        name: String,
        first: &'static Location<'static>,
        second: &'static Location<'static>,
    },
    #[error(
        "collect scenes: `{name}` at {place} has a name that no filter could name (use letters, digits, `_`, `-` and `.`)"
    )]
    BadName {
        name: String,
        place: &'static Location<'static>,
    },
    #[error("select cases: {what} `{wanted}` matches nothing; {hint}")]
    NoMatch {
        what: &'static str,
        wanted: String,
        hint: String,
    },
    #[error("select cases: no case is left of {of}; check --level, --step, --skip and --ignored")]
    NothingLeft { of: usize },
    #[error("read the list of cases {path}")]
    List { path: PathBuf, source: io::Error },
    #[error("order the time limits of `{name}`: they must be {ladder}")]
    Ladder { name: String, ladder: Ladder },
}

impl SelectError {
    /// Whether nothing matched, rather than something being wrong.
    pub(crate) fn is_no_match(&self) -> bool {
        matches!(self, Self::NoMatch { .. } | Self::NothingLeft { .. })
    }
}

/// All cases of all scenes, in order.
pub(crate) fn candidates(scenes: &[Scene]) -> Result<Vec<Candidate<'_>>, SelectError> {
    let mut seen: HashMap<String, &'static Location<'static>> = HashMap::new();
    let mut scene_names: HashMap<&str, &'static Location<'static>> = HashMap::new();
    let mut all = Vec::new();
    for scene in scenes {
        if let Some(first) = scene_names.insert(scene.name, scene.place) {
            let (name, second) = (scene.name.to_owned(), scene.place);
            return Err(SelectError::Twice {
                name,
                first,
                second,
            });
        }
        for case in scene.cases() {
            let name = format!("{}::{}", scene.name, case.name);
            if !(is_plain(scene.name) && is_plain(case.name)) {
                return Err(SelectError::BadName {
                    name,
                    place: scene.place,
                });
            }
            if let Some(first) = seen.insert(name.clone(), scene.place) {
                return Err(SelectError::Twice {
                    name,
                    first,
                    second: scene.place,
                });
            }
            all.push(Candidate { scene, case, name });
        }
    }
    Ok(all)
}

fn is_plain(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    !name.is_empty() && name.chars().all(plain)
}

/// The cases that the command line selects, in the order of the scenes.
pub(crate) fn select<'s>(
    all: Vec<Candidate<'s>>,
    args: &Args,
) -> Result<Vec<Selected<'s>>, SelectError> {
    let named = named(&all, args)?;
    let filtered = filtered(&all, args)?;
    check_step(&all, args)?;
    let total = all.len();
    // Names and filters each restrict; given both, a case may satisfy either.
    let wanted = |candidate: &Candidate<'_>| match (&named, &filtered) {
        (None, None) => true,
        (named, filtered) => [named, filtered]
            .into_iter()
            .flatten()
            .any(|names| names.contains(&candidate.name)),
    };
    let chosen: Vec<Selected<'s>> = all
        .into_iter()
        .filter(wanted)
        .filter(|candidate| passes(candidate, args))
        .map(|candidate| {
            let whole_filters = filtered.as_ref().filter(|_| args.exact);
            let by_name = [named.as_ref(), whole_filters]
                .into_iter()
                .flatten()
                .any(|names| names.contains(&candidate.name));
            let skip = reason_to_skip(&candidate, args, by_name);
            Selected {
                candidate,
                skip,
                update_golden: false,
            }
        })
        .collect();
    match chosen.is_empty() {
        true => Err(SelectError::NothingLeft { of: total }),
        false => Ok(chosen),
    }
}

/// Marks the cases whose golden files are to be rewritten: of those that are to be run.
pub(crate) fn mark_updates(
    selected: &mut [Selected<'_>],
    updates: &Updates,
) -> Result<(), SelectError> {
    let all: Vec<Candidate<'_>> = selected.iter().map(|s| s.candidate.clone()).collect();
    let has_one =
        |one: &&mut Selected<'_>| one.skip.is_none() && one.candidate.scene.golden.is_some();
    for wanted in &updates.names {
        let mut found = 0;
        for one in selected.iter_mut().filter(has_one) {
            let candidate = &one.candidate;
            if wanted == "all" || candidate.name == *wanted || candidate.scene.name == wanted {
                (found, one.update_golden) = (found + 1, true);
            }
        }
        if found == 0 {
            let (what, wanted) = ("the selected case with a golden file", wanted.clone());
            let hint = hint(&all, &wanted);
            return Err(SelectError::NoMatch { what, wanted, hint });
        }
    }
    if updates.all {
        let every = selected.iter_mut().filter(has_one);
        every.for_each(|one| one.update_golden = true);
    }
    Ok(())
}

/// Checks the time limits of what is to be run: those of a case that is skipped are nobody's.
pub(crate) fn check_limits(selected: &[Selected<'_>], args: &Args) -> Result<(), SelectError> {
    for Selected { candidate, .. } in selected.iter().filter(|one| one.skip.is_none()) {
        let ladder = Ladder {
            limits: candidate.case.limits,
            session: args.session_timeout,
        };
        if !ladder.holds() {
            return Err(SelectError::Ladder {
                name: candidate.name.clone(),
                ladder,
            });
        }
    }
    Ok(())
}

/// The names that --case and --cases-from give, as names of cases.
fn named(all: &[Candidate<'_>], args: &Args) -> Result<Option<HashSet<String>>, SelectError> {
    let listed = args.cases_from.as_ref().map_or(Ok(Vec::new()), |path| {
        let read = std::fs::read_to_string(path);
        let text = read.map_err(|source| SelectError::List {
            path: path.clone(),
            source,
        })?;
        let lines = text
            .lines()
            .map(|line| line.split('#').next().unwrap_or("").trim());
        Ok(lines
            .filter(|line| !line.is_empty())
            .map(str::to_owned)
            .collect())
    })?;
    if args.case.is_empty() && args.cases_from.is_none() {
        return Ok(None);
    }
    let mut names = HashSet::new();
    let wanted = args.case.iter().map(|name| ("the case", name));
    for (what, wanted) in wanted.chain(listed.iter().map(|name| ("the line", name))) {
        let of_it = |c: &&Candidate<'_>| c.name == *wanted || c.scene.name == wanted;
        let found: Vec<String> = all.iter().filter(of_it).map(|c| c.name.clone()).collect();
        if found.is_empty() {
            let (wanted, hint) = (wanted.clone(), hint(all, wanted));
            return Err(SelectError::NoMatch { what, wanted, hint });
        }
        names.extend(found);
    }
    Ok(Some(names))
}

fn filtered(all: &[Candidate<'_>], args: &Args) -> Result<Option<HashSet<String>>, SelectError> {
    if args.filters.is_empty() {
        return Ok(None);
    }
    let mut names = HashSet::new();
    for filter in &args.filters {
        let matches = |c: &&Candidate<'_>| match args.exact {
            true => c.name == *filter,
            false => c.name.contains(filter.as_str()),
        };
        let found: Vec<String> = all.iter().filter(matches).map(|c| c.name.clone()).collect();
        if found.is_empty() {
            let (wanted, hint) = (filter.clone(), hint(all, filter));
            return Err(SelectError::NoMatch {
                what: "the filter",
                wanted,
                hint,
            });
        }
        names.extend(found);
    }
    Ok(Some(names))
}

/// A step that no case is in matches nothing.
fn check_step(all: &[Candidate<'_>], args: &Args) -> Result<(), SelectError> {
    let Some(step) = &args.step else {
        return Ok(());
    };
    let mut known: Vec<&str> = all.iter().filter_map(|c| c.case.step).collect();
    known.sort_unstable();
    known.dedup();
    if known.contains(&step.as_str()) {
        return Ok(());
    }
    Err(SelectError::NoMatch {
        what: "the step",
        wanted: step.clone(),
        hint: format!("there are {known:?}"),
    })
}

fn passes(candidate: &Candidate<'_>, args: &Args) -> bool {
    let level = args
        .level
        .is_none_or(|level| level == candidate.scene.level);
    let ignored = !args.ignored || is_ignored(candidate, args);
    let step = args
        .step
        .as_deref()
        .is_none_or(|step| candidate.case.step == Some(step));
    level
        && step
        && ignored
        && !args
            .skip
            .iter()
            .any(|skip| candidate.name.contains(skip.as_str()))
}

/// Whether it is what test drivers call ignored: not run unless that is asked for. A driver that did not know
/// would start it, and count its skip as a pass.
fn is_ignored(candidate: &Candidate<'_>, args: &Args) -> bool {
    let Candidate { scene, case, .. } = candidate;
    case.manual
        || (case.step.is_some() && args.step.is_none())
        || !scene.platforms.contains(&args.platform)
}

fn reason_to_skip(candidate: &Candidate<'_>, args: &Args, by_name: bool) -> Option<String> {
    let asked = args.manual || args.ignored || by_name;
    if candidate.case.manual && !asked {
        return Some("manual: ask for it with --manual or by name".to_owned());
    }
    if let Some(step) = candidate
        .case
        .step
        .filter(|_| args.step.is_none() && !asked)
    {
        return Some(format!(
            "in a step of its own: ask for it with --step {step}, --ignored or by name"
        ));
    }
    if args.skip_golden && candidate.scene.golden.is_some() {
        return Some("it has a golden file, and --skip-golden was given".to_owned());
    }
    let platforms = &candidate.scene.platforms;
    if !platforms.contains(&args.platform) {
        let list: Vec<String> = platforms.iter().map(Platform::to_string).collect();
        return Some(format!(
            "for {} only, and this is {}",
            list.join(", "),
            args.platform
        ));
    }
    None
}

/// Names that are nearly what was asked for.
fn hint(all: &[Candidate<'_>], wanted: &str) -> String {
    let mut near: Vec<(usize, &str)> = all
        .iter()
        .flat_map(|c| [c.name.as_str(), c.scene.name])
        .map(|name| (distance(name, wanted), name))
        .filter(|(far, name)| *far <= name.len().max(wanted.len()) / 3)
        .collect();
    near.sort_unstable();
    near.dedup();
    match near.first() {
        Some((_, name)) => format!("did you mean `{name}`?"),
        None => format!("--list shows the {} cases that there are", all.len()),
    }
}

/// How many letters must be put in, taken out or changed.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, a) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in b.iter().enumerate() {
            let change = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests;
