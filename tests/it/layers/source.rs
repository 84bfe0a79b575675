//! Finds what each file uses by reading its tokens, because a parser does not see the paths in the
//! arguments of a macro. Each path is followed to the file that contains the named item.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};

/// The path of a file or an item from the root. A file has the name of its module.
pub type Names = Vec<&'static str>;
type Words = &'static [&'static str];
pub type Uses = BTreeMap<Names, BTreeSet<Names>>;

#[derive(Default)]
pub struct Source {
    modules: BTreeMap<Names, Names>,
    /// The items that a module has imported under a name. If a name has several items, `cfg`
    /// attributes determine which of the items is compiled.
    imports: BTreeMap<Names, Vec<Names>>,
    /// Each path with the module that contains it.
    paths: Vec<(Names, Names)>,
    /// The parts of a file in the comment `// Layers`, the lowest first. A part that is not in this
    /// comment is above all listed parts.
    pub orders: BTreeMap<Names, Names>,
}

impl Source {
    pub fn read(&mut self, file: &[&'static str], code: &'static str) {
        if let Some((_, order)) = code.split_once("// Layers") {
            let lines = order.lines().skip(1).map_while(|line| line.strip_prefix("//"));
            let names = lines.flat_map(|line| line.split(',')).map(str::trim);
            self.orders.insert(file.to_vec(), names.filter(|name| !name.is_empty()).collect());
        }
        self.modules.insert(file.to_vec(), file.to_vec());
        let (mut module, mut outer) = (file.to_vec(), vec![]);
        let mut words: Words = words(code.parse().unwrap()).leak();
        while let [first, after @ ..] = words {
            words = match (*first, after) {
                ("use", [name, ..]) if is_name(name) => self.import(&module, &[], after),
                ("mod", [name, "{", inside @ ..]) => {
                    outer.push(module.clone());
                    module.push(name);
                    self.modules.insert(module.clone(), file.to_vec());
                    inside
                }
                // The path is in another crate, or belongs to a type.
                (":", [":", name, beyond @ ..]) if is_name(name) => beyond,
                (name, [":", ":", ..]) if is_name(name) => {
                    let (path, beyond) = path(words);
                    self.paths.push((module.clone(), path));
                    beyond
                }
                (brace, _) => {
                    match brace {
                        "{" => outer.push(module.clone()),
                        "}" => module = outer.pop().unwrap(),
                        _ => {}
                    }
                    after
                }
            }
        }
    }

    /// Reads a tree of imports. Returns the tokens after the tree.
    fn import(&mut self, module: &[&'static str], above: &[&'static str], tree: Words) -> Words {
        let (own, rest) = path(tree);
        let mut path = [above, &own].concat();
        path.pop_if(|name| *name == "self" && !above.is_empty());
        let (name, rest) = match rest {
            ["{", inside @ ..] => {
                let mut rest = inside;
                while rest[0] != "}" {
                    rest = self.import(module, &path, rest);
                    rest = rest.strip_prefix(&[","]).unwrap_or(rest);
                }
                return &rest[1..];
            }
            ["as", name, rest @ ..] => (name, rest),
            ["*", rest @ ..] => (&"*", rest),
            _ => (path.last().unwrap(), rest),
        };
        self.imports.entry([module, &[name]].concat()).or_default().push(path.clone());
        self.paths.push((module.to_vec(), path));
        rest
    }

    /// Returns the files that contain the item that a path in a module names.
    pub fn find(&self, module: &[&'static str], path: &[&'static str]) -> Vec<Names> {
        let Some((first, rest)) = path.split_first() else {
            return vec![self.modules[module].clone()];
        };
        let named = [module, &[first]].concat();
        let imports = self.imports.get(&named).into_iter().flatten();
        // Paths into other crates are skipped.
        let imports: Vec<_> = imports.filter(|import| import[0] != *first).collect();
        match *first {
            "crate" => self.find(&[], rest),
            "self" => self.find(module, rest),
            "super" => self.find(&module[..module.len() - 1], rest),
            _ if !imports.is_empty() => {
                let paths = imports.iter().map(|import| [import, rest].concat());
                paths.flat_map(|path| self.find(module, &path)).collect()
            }
            _ if self.modules.contains_key(&named) => self.find(&named, rest),
            _ => self.find(module, &[]),
        }
    }

    pub fn files(&self) -> BTreeSet<Names> {
        self.modules.values().cloned().collect()
    }

    /// Returns the other files that each file uses.
    pub fn uses(&self) -> Uses {
        let mut uses = Uses::new();
        for (module, path) in &self.paths {
            let file = &self.modules[module];
            let used = self.find(module, path).into_iter().filter(|used| used != file);
            uses.entry(file.clone()).or_default().extend(used);
        }
        uses
    }
}

/// Returns the tokens as words. Comments are not tokens, and the contents of literals are omitted.
fn words(tokens: TokenStream) -> Names {
    let words = |token| match token {
        TokenTree::Group(group) => [vec!["{"], words(group.stream()), vec!["}"]].concat(),
        TokenTree::Literal(_) => vec![],
        token => vec![&*token.to_string().leak()],
    };
    tokens.into_iter().flat_map(words).collect()
}

fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Reads a path, such as `a::b`, at the beginning. Returns its names, and the tokens after them.
fn path(mut words: Words) -> (Names, Words) {
    let mut names = Names::new();
    while let [name, after @ ..] = words
        && is_name(name)
    {
        names.push(name);
        let [":", ":", next @ ..] = after else { return (names, after) };
        words = next;
    }
    (names, words)
}
