//! Checks for `cargo xtask tidy` that only one file of the command line opens stdout and stderr.

use std::path::Path;

use super::Finding;
use crate::source::Source;

/// The one file that may open them, and the folders of those that may not.
const DOOR: &str = "crates/verb/src/terminal.rs";
const FOLDERS: [&str; 3] = ["crates/cli/src", "crates/measure/src", "crates/verb/src"];
const STREAMS: &[&str] = &["io::stdout()", "io::stderr()", "anstream::"];

pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let inside = |source: &&Source| {
        FOLDERS.iter().any(|folder| source.path.starts_with(folder)) && source.path != Path::new(DOOR)
    };
    sources.iter().filter(inside).flat_map(opened).collect()
}

fn opened(source: &Source) -> Vec<Finding> {
    let lines = source.text.lines().enumerate();
    let opens = lines.filter(|(_, line)| STREAMS.iter().any(|stream| line.contains(stream)));
    let finding = |(at, _): (usize, &str)| Finding {
        file: source.path.clone(),
        line: at + 1,
        rule: format!("print through {DOOR}, which shows the control characters of foreign text"),
    };
    opens.map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_opened_by_the_printer_alone() {
        let source = |path: &str, text: &str| Source { path: path.into(), text: text.to_owned() };
        let sources = [
            source(DOOR, "io::stdout()"),
            source("crates/guard/src/say.rs", "io::stderr()"),
            source("crates/cli/src/command/a.rs", "use std::io;\nwriteln!(io::stdout(), \"x\")"),
            source("crates/cli/src/b.rs", "anstream::stderr()"),
            source("crates/cli/src/c.rs", "terminal::stdout()"),
        ];
        let found: Vec<_> = check(&sources).into_iter().map(|finding| (finding.file, finding.line)).collect();
        assert_eq!(found, [("crates/cli/src/command/a.rs".into(), 2), ("crates/cli/src/b.rs".into(), 1)]);
    }
}
