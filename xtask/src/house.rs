//! Measurements of the source tree: size, import cycles, function length, comments, names and tests.
//!
//! - *Product lines* are the lines of `.rs` files below `crates/*/src`, comments and blank lines included,
//!   without test files and inline test modules. A file is a test if it is named `tests.rs` or `…_tests.rs`,
//!   is below `tests/` or `benches/`, or is declared by `#[cfg(test)] mod`, directly or by such a file. An
//!   inline test module is `#[cfg(test)] mod name { … }`; the declaration of a test file does not count
//!   either.
//! - An *import cycle* is a strongly connected set of product files of one crate. An edge goes from a file to
//!   the files that its `crate::…`, `super::…` and `self::…` paths name, each path of a `use` group
//!   separately; edges between a module and the modules above or below it are left out.
//! - The length of a *function* of the product is the number of lines from `fn` to its closing brace.
//! - *Comment density* is the number of product lines that contain only a `//` comment (not `///`, not `//!`)
//!   per product line that contains code.
//! - A *doc comment* is a run of `///` or of `//!` lines. Doc comments and words of comments are counted
//!   below `crates/*/src`, tests included.
//! - *Type names* are those of structs, enums, unions, traits and type aliases of the product, without
//!   associated types.
//! - *Tests* are the attributes `#[test]` and `#[….::test]` of the whole repository.
//!
//! The source is read by a lexer, not by a parser, so macros are counted as written, not as expanded.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

mod cycles;
mod figures;
mod lexer;
mod listing;
mod modules;
mod options;
mod outline;
mod prose;
mod survey;
mod table;
mod tree;

use options::Options;
use survey::Survey;
use table::Column;
use tree::Tree;
pub(crate) use tree::TreeError;

const HELP: &str = "\
usage: cargo xtask house [PATH] [--beside PATH] [--json] [--check] [--list KIND] [--crate NAME]

Measures the tree at PATH, by default this repository.

  --beside PATH   print a second column for another checkout
  --json          print an object for each tree
  --check         exit with 1 where a bound is broken
  --list KIND     print the places behind a figure as file:line instead of the table:
                    docs      doc comments that open with What, Who, Whose, Where, How, Whether, Why, When or Which
                    comments  // lines of each file, those first that lack most of 4 %
                    who       who, whoever, whom, somebody, nobody, anybody and someone in comments
                    long      functions over 50 lines
                    names     type names that are defined twice or more (also --names)
                    cycles    the imports within the largest cycle of each crate
  --crate NAME    list the places of one crate only (its folder in crates/)

product lines     lines of .rs files below crates/*/src, comments and blanks included, less test files (tests.rs,
                  *_tests.rs, below tests/ or benches/, or declared by #[cfg(test)] mod) and inline #[cfg(test)] modules
import cycle      product files of one crate that reach each other by crate::, super:: and self:: paths; edges
                  between a module and those above or below it are left out
functions         product functions, from fn to the closing brace
// density        product lines that are a // comment alone (not /// or //!), per product line with code
doc comments      runs of /// or //! lines below crates/*/src, tests included; so are words of comments
type names        structs, enums, unions, traits and type aliases of the product, associated types left out
tests             #[test] and #[...::test] in the whole repository";

/// An import between modules of a crate, by the names of the top modules that the two files belong to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Import {
    /// The crate's folder in `crates/`.
    pub(crate) of: String,
    pub(crate) file: PathBuf,
    pub(crate) line: usize,
    pub(crate) from: String,
    pub(crate) to: String,
}

/// The imports of the product files of every crate. Those of a crate root are left out: it has no top module.
pub(crate) fn imports(root: &Path) -> Result<Vec<Import>, TreeError> {
    let tree = Tree::read(root)?;
    Ok(tree.crates.iter().flat_map(cycles::imports).collect())
}

/// Measures the tree at `root`, or the trees that `words` name, and prints table, JSON or listing.
pub(crate) fn run(root: &Path, words: &[&str]) -> ExitCode {
    let options = match Options::read(words) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("xtask: {error}");
            return ExitCode::from(2);
        }
    };
    if options.help {
        println!("{HELP}");
        return ExitCode::SUCCESS;
    }
    match columns(root, &options) {
        Ok(columns) => report(&columns, &options),
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::from(2)
        }
    }
}

fn columns(root: &Path, options: &Options) -> Result<Vec<Column>, TreeError> {
    let first = options.tree.as_deref().unwrap_or(root);
    let column = |path: &Path| {
        let survey = Survey::of(&Tree::read(path)?);
        let head = path.display().to_string();
        Ok(Column { head, survey })
    };
    [Some(first), options.beside.as_deref()].into_iter().flatten().map(column).collect()
}

/// Prints what was asked for. A bound counts for the first tree only.
fn report(columns: &[Column], options: &Options) -> ExitCode {
    let Some(first) = columns.first() else {
        return ExitCode::FAILURE;
    };
    let text = match options.list {
        Some(kind) => listing::listing(&first.survey, kind, options.of.as_deref()),
        None if options.json => format!("{:#}\n", table::json(columns)),
        None => table::text(columns),
    };
    // `head` may close the pipe before all is written, which is no error of this program.
    let _ = io::stdout().write_all(text.as_bytes());
    let figures = figures::figures(&first.survey);
    let broken: Vec<&str> =
        figures.iter().filter(|figure| !figure.holds()).map(|figure| figure.label.trim()).collect();
    if !options.check || broken.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("house: {} bounds broken: {}", broken.len(), broken.join("; "));
    ExitCode::FAILURE
}
