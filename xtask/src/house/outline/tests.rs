//! Tests of the reader of a source file's items.

use super::super::lexer::lex;
use super::*;

fn read(source: &str) -> Outline {
    outline(&lex(source).tokens)
}

#[test]
fn modules_know_their_path_and_whether_they_are_tests() {
    let found = read(
        "mod a;\n#[cfg(test)]\npub(crate) mod b;\n#[path = \"../c.rs\"]\n#[cfg(all(test, unix))] mod c;\n\
         #[cfg(not(test))] mod d;\nmod inline { mod e; }\n#[cfg(test)]\n#[allow(dead_code)]\nmod tests {\n mod f;\n}\n",
    );
    let names: Vec<_> = found
        .module_files
        .iter()
        .map(|module| (module.name.as_str(), module.is_test, module.within.len()))
        .collect();
    assert_eq!(
        names,
        [("a", false, 0), ("b", true, 0), ("c", true, 0), ("d", false, 0), ("e", false, 1), ("f", true, 1)]
    );
    assert_eq!(found.module_files[2].path.as_deref(), Some("../c.rs"));
    assert_eq!(found.test_lines, [2..4, 4..6, 8..13]);
}

#[test]
fn functions_are_measured_from_fn_to_brace() {
    let found = read(
        "trait T { fn no(&self); fn yes(&self) {} }\nfn long(a: [u8; 2],\n b: fn(u8)) -> u8\n{\n fn inner() {}\n}\n\
         #[cfg(test)] mod tests { fn t() {} }",
    );
    let lengths: Vec<_> = found.functions.iter().map(|f| (f.name.as_str(), f.length, f.is_test)).collect();
    assert_eq!(lengths, [("yes", 1, false), ("long", 5, false), ("inner", 1, false), ("t", 1, true)]);
}

#[test]
fn associated_types_are_no_type_names() {
    let found = read(
        "pub(crate) struct A; enum B {} unsafe impl I for A { type Item = u8; }\n\
         trait C { type Out; }\ntype D = u8; fn f(x: impl Fn()) -> impl C { type E = u8; }\n#[repr(C)] pub union F {}",
    );
    let names: Vec<&str> = found.types.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["A", "B", "C", "D", "E", "F"]);
}

#[test]
fn tests_of_every_runtime_are_counted() {
    let found = read(
        "#[test] fn a() {} #[tokio::test(flavor = \"x\")] fn b() {} #[ignore = \"c\"] #[test] fn d() {}",
    );
    assert_eq!((found.tests, found.ignored), (3, 1));
}

#[test]
fn paths_in_groups_are_taken_apart() {
    let found = read(
        "use crate::{a, b::{self, C, d::*}};\nuse super::super::e as f;\nfn x() { crate::g::h(self.i) }\n\
         pub(in crate::j) fn y() {}\nmod m { use super::k; }\n#[cfg(test)] mod tests { use super::*; }",
    );
    let paths: Vec<String> = found.paths.iter().map(|path| path.segments.join("::")).collect();
    assert_eq!(
        paths,
        ["crate::a", "crate::b", "crate::b::C", "crate::b::d", "super::super::e", "crate::g::h", "super::k"]
    );
    assert_eq!(found.paths[6].within, ["m"]);
}
