//! Items of one Rust source file: modules, functions, type names, tests and paths to other modules.

use std::ops::Range;

use super::lexer::{Token, TokenKind};

mod attributes;
mod paths;

pub(super) use paths::ModulePath;

/// `mod name;`
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ModuleFile {
    pub(super) name: String,
    /// The value of `#[path = "…"]`.
    pub(super) path: Option<String>,
    pub(super) is_test: bool,
    /// The inline modules around the declaration.
    pub(super) within: Vec<String>,
}

/// `mod name { … }`
#[derive(Debug, Clone, PartialEq, Eq)]
struct InlineModule {
    name: String,
    is_test: bool,
    tokens: Range<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: String,
    pub(super) line: usize,
    /// Lines from `fn` to the closing brace.
    pub(super) length: usize,
    pub(super) is_test: bool,
}

/// A struct, enum, union, trait or type alias.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TypeName {
    pub(super) name: String,
    pub(super) line: usize,
    pub(super) is_test: bool,
}

#[derive(Debug, Default)]
pub(super) struct Outline {
    pub(super) module_files: Vec<ModuleFile>,
    pub(super) functions: Vec<Function>,
    pub(super) types: Vec<TypeName>,
    /// `crate::…`, `super::…` and `self::…` outside tests.
    pub(super) paths: Vec<ModulePath>,
    pub(super) tests: usize,
    pub(super) ignored: usize,
    /// Lines of inline test modules, and of the declarations of test modules with files of their own.
    pub(super) test_lines: Vec<Range<usize>>,
}

/// Reads the items of a file from its tokens.
pub(super) fn outline(tokens: &[Token<'_>]) -> Outline {
    let reader = Reader::new(tokens);
    Outline {
        module_files: reader.module_files(),
        functions: reader.functions(),
        types: reader.types(),
        paths: paths::read(&reader),
        tests: reader.attributes(|words| words.last() == Some(&"test")),
        ignored: reader.attributes(|words| words.first() == Some(&"ignore")),
        test_lines: reader.test_lines(),
    }
}

/// The tokens of a file with the answers that several questions share.
struct Reader<'a> {
    tokens: &'a [Token<'a>],
    /// For each opening bracket the index of its closing one; for all other tokens their own.
    closing: Vec<usize>,
    inline: Vec<InlineModule>,
}

impl<'a> Reader<'a> {
    fn new(tokens: &'a [Token<'a>]) -> Self {
        let mut reader = Self { tokens, closing: closing(tokens), inline: Vec::new() };
        reader.inline = reader.inline_modules();
        reader
    }

    fn text(&self, at: usize) -> &'a str {
        self.tokens.get(at).map_or("", |token| token.text)
    }

    fn is_name(&self, at: usize) -> bool {
        self.tokens.get(at).is_some_and(|token| token.kind == TokenKind::Word)
    }

    /// The names of the inline modules around a token, outermost first.
    fn within(&self, at: usize) -> Vec<String> {
        let around = self.inline.iter().filter(|module| module.tokens.contains(&at));
        around.map(|module| module.name.clone()).collect()
    }

    fn is_test(&self, at: usize) -> bool {
        self.inline.iter().any(|module| module.is_test && module.tokens.contains(&at))
    }

    /// The places of `mod name` and of the token behind the name.
    fn modules(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.tokens.len()).filter(|&at| {
            self.text(at) == "mod" && self.is_name(at + 1) && matches!(self.text(at + 2), ";" | "{")
        })
    }

    fn inline_modules(&self) -> Vec<InlineModule> {
        let inline = self.modules().filter(|&at| self.text(at + 2) == "{");
        inline
            .map(|at| {
                let end = self.closing[at + 2];
                InlineModule {
                    name: self.text(at + 1).to_owned(),
                    is_test: self.is_declared_as_test(at),
                    tokens: at..end,
                }
            })
            .collect()
    }

    fn module_files(&self) -> Vec<ModuleFile> {
        let files = self.modules().filter(|&at| self.text(at + 2) == ";");
        files
            .map(|at| {
                let attributes = self.attributes_before(at);
                ModuleFile {
                    name: self.text(at + 1).to_owned(),
                    path: attributes.iter().find_map(|attribute| self.path_value(attribute)),
                    is_test: self.is_test(at) || self.is_declared_as_test(at),
                    within: self.within(at),
                }
            })
            .collect()
    }

    fn functions(&self) -> Vec<Function> {
        let named = (0..self.tokens.len()).filter(|&at| self.text(at) == "fn" && self.is_name(at + 1));
        named
            .filter_map(|at| {
                let open = self.body(at)?;
                let line = self.tokens[at].line;
                Some(Function {
                    name: self.text(at + 1).to_owned(),
                    line,
                    length: self.tokens[self.closing[open]].line - line + 1,
                    is_test: self.is_test(at),
                })
            })
            .collect()
    }

    /// The opening brace of the item at `at`, unless `;` ends it before.
    fn body(&self, mut at: usize) -> Option<usize> {
        while at < self.tokens.len() {
            match self.text(at) {
                "{" => return Some(at),
                ";" => return None,
                _ => at = self.closing[at] + 1,
            }
        }
        None
    }

    fn types(&self) -> Vec<TypeName> {
        let associated = self.associated();
        (0..self.tokens.len())
            .filter(|&at| self.is_type(at) && !associated.iter().any(|body| body.contains(&at)))
            .map(|at| TypeName {
                name: self.text(at + 1).to_owned(),
                line: self.tokens[at].line,
                is_test: self.is_test(at),
            })
            .collect()
    }

    fn is_type(&self, at: usize) -> bool {
        let keyword = matches!(self.text(at), "struct" | "enum" | "union" | "type" | "trait");
        let capital = self.is_name(at + 1) && self.text(at + 1).starts_with(char::is_uppercase);
        keyword && capital
    }

    /// The bodies of `impl` and `trait`, in which `type Name` is an associated type.
    fn associated(&self) -> Vec<Range<usize>> {
        (0..self.tokens.len())
            .filter(|&at| match self.text(at) {
                "trait" => self.is_type(at),
                "impl" => at == 0 || matches!(self.text(at - 1), "}" | ";" | "{" | "]" | "unsafe"),
                _ => false,
            })
            .filter_map(|at| {
                let open = self.body(at + 1)?;
                Some(open..self.closing[open])
            })
            .collect()
    }
}

fn closing(tokens: &[Token<'_>]) -> Vec<usize> {
    let mut closing: Vec<usize> = (0..tokens.len()).collect();
    let mut open = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        if token.kind != TokenKind::Punctuation {
            continue;
        }
        match token.text {
            "(" | "[" | "{" => open.push(at),
            ")" | "]" | "}" => {
                if let Some(start) = open.pop() {
                    closing[start] = at;
                }
            }
            _ => {}
        }
    }
    closing
}

#[cfg(test)]
mod tests;
