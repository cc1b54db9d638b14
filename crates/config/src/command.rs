//! Splits command lines into arguments, like a POSIX shell but without variables, globs and pipes.
//!
//! The rules are llama-swap's (`internal/config/commands.go: SanitizeCommand @ v250`), but an unclosed quote
//! is an error.

use super::failure::ConfigProblem;

/// Splits a command into its arguments; at least one.
pub(crate) fn split(text: &str) -> Result<Vec<String>, ConfigProblem> {
    let refused = |(why, remedy)| ConfigProblem::SplitCommand { why, remedy };
    let words = CommandWords::default().read(&without_comments(text)).map_err(refused)?;
    if words.is_empty() {
        return Err(refused(("it is empty", "write a program and its arguments")));
    }
    Ok(words)
}

/// Drops comment lines and joins continued ones.
pub(crate) fn without_comments(text: &str) -> String {
    let lines = text.split('\n').filter(|line| !line.trim_start().starts_with('#'));
    let mut clean = String::with_capacity(text.len());
    for line in lines {
        // Blanks after the backslash are tolerated. The newline stays and separates the arguments.
        match line.trim().strip_suffix('\\') {
            Some(continued) => clean.push_str(continued),
            None => clean.push_str(line),
        }
        clean.push('\n');
    }
    clean
}

#[derive(Default)]
struct CommandWords {
    done: Vec<String>,
    /// The word being read; `Some("")` once quotes have opened and closed.
    word: Option<String>,
}

type Complaint = (&'static str, &'static str);

impl CommandWords {
    fn read(mut self, text: &str) -> Result<Vec<String>, Complaint> {
        let mut rest = text.chars();
        while let Some(c) = rest.next() {
            match c {
                '\'' => self.single_quoted(&mut rest)?,
                '"' => self.double_quoted(&mut rest)?,
                '\\' => self
                    .push(rest.next().ok_or(("the command ends with a backslash", "remove the backslash"))?),
                _ if c.is_ascii_whitespace() => self.done.extend(self.word.take()),
                _ => self.push(c),
            }
        }
        self.done.extend(self.word.take());
        Ok(self.done)
    }

    fn push(&mut self, c: char) {
        self.word.get_or_insert_default().push(c);
    }

    fn single_quoted(&mut self, rest: &mut std::str::Chars<'_>) -> Result<(), Complaint> {
        let (quoted, after) = rest.as_str().split_once('\'').ok_or(UNCLOSED)?;
        // Quotes may open inside a word, and an empty pair is an empty argument.
        self.word.get_or_insert_default().push_str(quoted);
        *rest = after.chars();
        Ok(())
    }

    /// A backslash is an ordinary character except before `"`, `\`, `$` and a backtick.
    fn double_quoted(&mut self, rest: &mut std::str::Chars<'_>) -> Result<(), Complaint> {
        let word = self.word.get_or_insert_default();
        loop {
            match rest.next().ok_or(UNCLOSED)? {
                '"' => return Ok(()),
                '\\' => {
                    let escaped = rest.next().ok_or(UNCLOSED)?;
                    // POSIX: inside double quotes a backslash is literal before any other character.
                    if !matches!(escaped, '"' | '\\' | '$' | '`') {
                        word.push('\\');
                    }
                    word.push(escaped);
                }
                c => word.push(c),
            }
        }
    }
}

const UNCLOSED: Complaint =
    ("a quotation mark is not closed", "close the quotation mark, or put a backslash before it");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_as_a_shell_does() {
        for (text, words) in [
            ("a b  c", &["a", "b", "c"][..]),
            ("a 'b c' \"d e\"", &["a", "b c", "d e"]),
            (r#"a "x\"y" 'x\y' x\ y "\n""#, &["a", "x\"y", r"x\y", "x y", r"\n"]),
            ("a ''", &["a", ""]),
            ("a --x='{\"k\": 1}'", &["a", "--x={\"k\": 1}"]),
            ("a \\\n  b \\  \n c\n# no\n  # no\nd #yes", &["a", "b", "c", "d", "#yes"]),
        ] {
            assert_eq!(split(text).unwrap(), words, "{text}");
        }
    }

    #[test]
    fn an_open_quote_or_an_empty_command_is_refused() {
        for (text, message) in [
            (
                "a 'b",
                "the command cannot be split into arguments: a quotation mark is not closed; close the quotation mark, or put a backslash before it",
            ),
            (
                "a \"b\\",
                "the command cannot be split into arguments: a quotation mark is not closed; close the quotation mark, or put a backslash before it",
            ),
            (
                " \n# c\n",
                "the command cannot be split into arguments: it is empty; write a program and its arguments",
            ),
        ] {
            assert_eq!(split(text).unwrap_err().to_string(), message);
        }
    }
}
