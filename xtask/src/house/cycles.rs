//! Import cycles between the product files of a crate.
//!
//! An edge goes from a file to each file that one of its `crate::…`, `super::…` or `self::…` paths names: the
//! deepest module on the path that has a file. Edges between a module and the modules above or below it in
//! the module tree are left out.

use std::collections::{BTreeMap, HashMap};

use super::Import;
use super::modules::Module;
use super::outline::ModulePath;
use super::tree::Crate;

/// Files of a crate that import each other, by number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Cycle {
    /// Sorted. Fewer than two files are no cycle, and the list is then empty.
    pub(super) files: Vec<usize>,
    /// The edges within: from, to, line in `from`.
    pub(super) edges: Vec<(usize, usize, usize)>,
}

/// The largest strongly connected set of files.
pub(super) fn largest(of: &Crate) -> Cycle {
    let edges = edges(of);
    let mut next = vec![Vec::new(); of.files.len()];
    for (from, to) in edges.keys() {
        next[*from].push(*to);
    }
    let mut files = components(&next)
        .into_iter()
        .max_by_key(Vec::len)
        .filter(|files| files.len() > 1)
        .unwrap_or_default();
    files.sort_unstable();
    let within = |file: &usize| files.binary_search(file).is_ok();
    let edges = edges
        .iter()
        .filter(|((from, to), _)| within(from) && within(to))
        .map(|((from, to), line)| (*from, *to, *line))
        .collect();
    Cycle { files, edges }
}

/// The same edges by the top modules of their files.
pub(super) fn imports(of: &Crate) -> Vec<Import> {
    let top = |file: usize| {
        let module = of.modules.iter().find(|module| module.file == file)?;
        module.path.first().cloned()
    };
    let found = edges(of).into_iter().filter_map(|((from, to), line)| {
        Some(Import {
            of: of.name.clone(),
            file: of.files[from].path.clone(),
            line,
            from: top(from)?,
            to: top(to)?,
        })
    });
    found.collect()
}

/// From, to, and the first line that makes the edge.
fn edges(of: &Crate) -> BTreeMap<(usize, usize), usize> {
    let by_path: HashMap<(usize, &[String]), &Module> =
        of.modules.iter().map(|module| ((module.root, module.path.as_slice()), module)).collect();
    let mut edges = BTreeMap::new();
    for module in of.modules.iter().filter(|module| !of.files[module.file].is_test) {
        for path in &of.files[module.file].outline.paths {
            let Some(named) = absolute(&module.path, path) else {
                continue;
            };
            let target =
                (0..=named.len()).rev().find_map(|length| by_path.get(&(module.root, &named[..length])));
            if let Some(target) = target
                && !of.files[target.file].is_test
                && !is_line(&module.path, &target.path)
            {
                let line = edges.entry((module.file, target.file)).or_insert(path.line);
                *line = path.line.min(*line);
            }
        }
    }
    edges
}

/// One is the other, or above the other.
fn is_line(a: &[String], b: &[String]) -> bool {
    a.starts_with(b) || b.starts_with(a)
}

/// The path from the crate root; none where `super` leads out of the crate.
fn absolute(module: &[String], path: &ModulePath) -> Option<Vec<String>> {
    let mut place: Vec<String> = module.iter().chain(&path.within).cloned().collect();
    for (number, segment) in path.segments.iter().enumerate() {
        match segment.as_str() {
            "crate" if number == 0 => place.clear(),
            "self" => {}
            "super" => {
                place.pop()?;
            }
            name => place.push(name.to_owned()),
        }
    }
    Some(place)
}

/// Strongly connected components by Tarjan's algorithm, with a stack of its own instead of recursion.
fn components(next: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut search = Search {
        next,
        order: vec![None; next.len()],
        low: vec![0; next.len()],
        is_open: vec![false; next.len()],
        open: Vec::new(),
        count: 0,
        found: Vec::new(),
    };
    for start in 0..next.len() {
        if search.order[start].is_none() {
            search.from(start);
        }
    }
    search.found
}

struct Search<'a> {
    next: &'a [Vec<usize>],
    order: Vec<Option<usize>>,
    low: Vec<usize>,
    is_open: Vec<bool>,
    open: Vec<usize>,
    count: usize,
    found: Vec<Vec<usize>>,
}

impl Search<'_> {
    fn from(&mut self, start: usize) {
        let mut calls = vec![(start, 0)];
        self.enter(start);
        while let Some((node, edge)) = calls.pop() {
            if let Some(&to) = self.next[node].get(edge) {
                calls.push((node, edge + 1));
                match self.order[to] {
                    None => {
                        self.enter(to);
                        calls.push((to, 0));
                    }
                    Some(order) if self.is_open[to] => self.low[node] = self.low[node].min(order),
                    Some(_) => {}
                }
            } else {
                self.leave(node);
                if let Some((caller, _)) = calls.last() {
                    self.low[*caller] = self.low[*caller].min(self.low[node]);
                }
            }
        }
    }

    fn enter(&mut self, node: usize) {
        self.order[node] = Some(self.count);
        self.low[node] = self.count;
        self.count += 1;
        self.is_open[node] = true;
        self.open.push(node);
    }

    /// Closes the component whose first node this is.
    fn leave(&mut self, node: usize) {
        if self.order[node] != Some(self.low[node]) {
            return;
        }
        let start = self.open.iter().rposition(|open| *open == node).unwrap_or_default();
        let component = self.open.split_off(start);
        for member in &component {
            self.is_open[*member] = false;
        }
        self.found.push(component);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(path: &str) -> Vec<String> {
        path.split("::").filter(|s| !s.is_empty()).map(str::to_owned).collect()
    }

    #[test]
    fn components_are_the_cycles() {
        let next = vec![vec![1], vec![2], vec![0, 3], vec![4], vec![3], vec![]];
        let mut found = components(&next);
        found.iter_mut().for_each(|component| component.sort_unstable());
        found.sort();
        assert_eq!(found, [vec![0, 1, 2], vec![3, 4], vec![5]]);
    }

    #[test]
    fn paths_are_read_from_where_they_stand() {
        let path = |segments: &str, within: &str| ModulePath {
            within: words(within),
            segments: words(segments),
            line: 1,
        };
        let from = words("a::b");
        assert_eq!(absolute(&from, &path("crate::c::D", "")), Some(words("c::D")));
        assert_eq!(absolute(&from, &path("super::c", "")), Some(words("a::c")));
        assert_eq!(absolute(&from, &path("super::super::c", "m")), Some(words("a::c")));
        assert_eq!(absolute(&from, &path("self::c", "")), Some(words("a::b::c")));
        assert_eq!(absolute(&[], &path("super::c", "")), None);
    }

    #[test]
    fn lines_of_descent_are_no_edges() {
        assert!(is_line(&words("a"), &words("a::b")) && is_line(&words("a::b"), &words("")));
        assert!(!is_line(&words("a::b"), &words("a::c")));
    }
}
