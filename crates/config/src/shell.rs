//! Finds shell syntax, such as pipes and variables, in commands that run without a shell.
//!
//! The daemon starts commands without a shell, so such words would reach the program as plain arguments.

use plimsoll_flags::{Warning, quoted};

use crate::roster::{Configuration, ConfiguredModel, Launch};

const OPERATORS: [&str; 6] = ["&&", "||", "|", ";", "&", "<"];
const REDIRECTIONS: [&str; 3] = [">", "2>", "&>"];

impl Configuration {
    /// Warns of words that reach the program as arguments, although their author meant them for a shell.
    pub fn warn_of_shell_words(&mut self) {
        let reported = self.models.iter().flat_map(|model| {
            let texts = shell_words(model).into_iter();
            texts.map(|(text, hint)| Warning::new(model.origin.0.clone(), text).hint(hint))
        });
        self.warnings.extend(reported.collect::<Vec<_>>());
    }
}

/// True for a command whose first word is a variable, which is no program.
pub(crate) fn is_of_a_shell(entry: &ConfiguredModel) -> bool {
    matches!(&entry.launch, Launch::Command { argv, .. } if variable(argv).is_some())
}

fn variable(argv: &[String]) -> Option<&str> {
    let (variable, _) = argv.first()?.split_once('=')?;
    // A path may have the sign in it.
    (!variable.contains('/')).then_some(variable)
}

fn is_operator(word: &str) -> bool {
    OPERATORS.contains(&word) || REDIRECTIONS.iter().any(|start| word.starts_with(start))
}

fn shell_words(entry: &ConfiguredModel) -> Vec<(String, &'static str)> {
    let Launch::Command { argv, .. } = &entry.launch else { return Vec::new() };
    // The shell of the other machine reads them.
    if argv.first().is_some_and(|word| word.rsplit('/').next() == Some("ssh")) {
        return Vec::new();
    }
    let no_shell = format!("no shell runs the command of `{}`, so", quoted(&entry.name));
    let mut found = Vec::new();
    if let Some(word) = argv.iter().find(|word| is_operator(word)) {
        let text = format!("{no_shell} `{}` is an argument of the program", quoted(word));
        found.push((text, "write `sh -c 'exec …'`, or leave it out"));
    }
    if argv.iter().any(|word| word == "#") {
        let text = format!("{no_shell} `#` and the words after it are arguments of the program");
        found.push((text, "put the comment on a line of its own, in a `cmd: |`"));
    }
    if let Some(variable) = variable(argv) {
        let text = format!("{no_shell} its program would be `{}=…`", quoted(variable));
        found.push((text, "set the variable in `env`"));
    }
    // Only a shell finds the home folder in it.
    if let Some(word) = argv.iter().find(|word| word.starts_with("~/")) {
        let text = format!("{no_shell} `~` in `{}` is not a home folder", quoted(word));
        found.push((text, "write the whole path, in llama-swap's YAML as `${env.HOME}/…`"));
    }
    found
}
