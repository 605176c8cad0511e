//! Functions that spawned children run, found by name.
//!
//! A spawned child is the same program started again, at other addresses: a closure means nothing
//! to it, a name does. The linker collects what [`register!`](crate::register) declares anywhere in
//! the program.

use linkme::distributed_slice;

use crate::context::ChildContext;
use crate::ending::Ending;
use crate::options::ForkOptions;
use crate::prepare::StartError;

/// A registered function. Made by [`register!`](crate::register) only.
#[doc(hidden)]
#[derive(Debug)]
pub struct Function {
    pub name: &'static str,
    pub file: &'static str,
    pub line: u32,
    pub run: fn(ChildContext) -> (u8, Option<String>),
}

/// All registered functions of the program, in no order.
#[doc(hidden)]
#[distributed_slice]
pub static FUNCTIONS: [Function];

/// Registers functions that [`spawn`](crate::spawn()) can run, by name.
///
/// Each is a `fn(ChildContext) -> impl Ending` and may be declared in any module of any crate of
/// the program. The same function can be given to [`fork`](crate::fork()) as well.
///
/// ```
/// use procfork::ChildContext;
///
/// fn decode(context: ChildContext) -> Result<(), String> {
///     Err(format!("{} has {} bytes to do", context.name, context.args.len()))
/// }
///
/// procfork::register! {
///     "decode" => decode,
/// }
/// ```
#[macro_export]
macro_rules! register {
    ($($name:literal => $function:expr),+ $(,)?) => {
        $(const _: () = {
            #[$crate::__private::distributed_slice($crate::__private::FUNCTIONS)]
            #[linkme(crate = $crate::__private::linkme)]
            static FUNCTION: $crate::__private::Function = $crate::__private::Function {
                name: $name,
                file: ::core::file!(),
                line: ::core::line!(),
                run: |context| $crate::__private::finish($function(context)),
            };
        };)+
    };
}

/// What a registered function's result comes down to.
#[doc(hidden)]
pub fn finish<R: Ending>(result: R) -> (u8, Option<String>) {
    let ending = (result.code(), result.last_words());
    // As after a fork: a destructor that panics must not change the ending.
    std::mem::forget(result);
    ending
}

/// The one function of this name.
pub(crate) fn find(options: &ForkOptions<'_>, name: &str) -> Result<&'static Function, StartError> {
    pick(&FUNCTIONS, options, name)
}

fn pick<'a>(
    all: &'a [Function],
    options: &ForkOptions<'_>,
    name: &str,
) -> Result<&'a Function, StartError> {
    let found: Vec<&Function> = all
        .iter()
        .filter(|function| function.name == name)
        .collect();
    let (child, function) = (options.name.clone(), name.to_owned());
    match found[..] {
        [function] => Ok(function),
        [] => {
            let mut known: Vec<&'static str> = all.iter().map(|function| function.name).collect();
            known.sort_unstable();
            known.dedup();
            Err(StartError::UnknownFunction {
                child,
                function,
                known,
            })
        }
        _ => {
            let mut places: Vec<String> = found
                .iter()
                .map(|found| format!("{}:{}", found.file, found.line))
                .collect();
            places.sort_unstable();
            Err(StartError::DuplicateFunction {
                child,
                function,
                places,
            })
        }
    }
}

#[cfg(test)]
mod tests;
