//! The folders of `src` are layers: each uses only those before it, in the order that `src/lib.rs`
//! tells.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The layers, the lowest first; and the layer of each name that the root has from one of them.
struct Layers {
    names: Vec<String>,
    of_public: HashMap<String, usize>,
}

impl Layers {
    fn read(root: &str) -> Self {
        let (_, told) = root.split_once("// Layers").expect("the order of the layers");
        let told = told.lines().nth(1).unwrap().trim_start_matches("//");
        let names: Vec<String> = told.split(',').map(|name| name.trim().to_owned()).collect();
        for module in root.lines().filter_map(|line| line.strip_prefix("mod ")) {
            let module = module.trim_end_matches(';');
            assert!(names.iter().any(|name| name == module), "{module} is in no layer");
        }
        let mut of_public = HashMap::new();
        for line in root.lines().filter_map(|line| line.strip_prefix("pub use ")) {
            let Some((layer, public)) = line.split_once("::") else { continue };
            let Some(layer) = names.iter().position(|name| name == layer) else { continue };
            let public = public.split(|c: char| !is_part_of_name(c));
            of_public
                .extend(public.filter(|name| !name.is_empty()).map(|name| (name.into(), layer)));
        }
        Self { names, of_public }
    }

    fn layer_of(&self, name: &str) -> Option<usize> {
        let named = self.names.iter().position(|layer| layer == name);
        named.or_else(|| self.of_public.get(name).copied())
    }

    /// What a module uses of layers above its own. `module` is its path from the root.
    fn against_the_order(&self, module: &[&str], code: &str) -> Vec<String> {
        let own = self.layer_of(module[0]).unwrap_or_else(|| panic!("{module:?} is in no layer"));
        let is_above = |name: &&str| self.layer_of(name).is_some_and(|layer| layer > own);
        let used = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        let used: String = used.flat_map(|line| [line, "\n"]).collect();
        let used = roots_of(module, &used);
        used.into_iter().filter(|name| is_above(&name.as_str())).collect()
    }
}

fn is_part_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// What follows the root in each path that leads there: by `crate::`, or by enough of `super::`.
fn roots_of(module: &[&str], code: &str) -> Vec<String> {
    let mut roots = Vec::new();
    for (start, _) in code.match_indices("crate::") {
        roots.extend(first_names(&code[start + "crate::".len()..]));
    }
    let up = "super::".repeat(module.len());
    for (start, _) in code.match_indices(&up) {
        roots.extend(first_names(&code[start + up.len()..]));
    }
    roots
}

/// The first name of a path, or of each path in braces.
fn first_names(rest: &str) -> Vec<String> {
    let name = |text: &str| text.trim_start().split(|c| !is_part_of_name(c)).next().unwrap().into();
    let Some(group) = rest.strip_prefix('{') else {
        return vec![name(rest)];
    };
    let (mut names, mut depth, mut is_next) = (Vec::new(), 0, true);
    for (index, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => is_next = true,
            c if is_next && is_part_of_name(c) => {
                names.push(name(&group[index..]));
                is_next = false;
            }
            _ => {}
        }
    }
    names
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn no_layer_uses_one_above_it() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../src");
    let layers = Layers::read(&fs::read_to_string(src.join("lib.rs")).unwrap());
    assert!(layers.names.len() > 5 && layers.of_public.len() > 10, "{:?}", layers.names);
    let mut looked_at = 0;
    for path in files(&src).iter().filter(|path| !path.ends_with("lib.rs")) {
        let module = path.strip_prefix(&src).unwrap().with_extension("");
        let module: Vec<&str> = module.iter().map(|part| part.to_str().unwrap()).collect();
        let module = module.strip_suffix(&["mod"]).unwrap_or(&module);
        let against = layers.against_the_order(module, &fs::read_to_string(path).unwrap());
        assert!(against.is_empty(), "{} uses {against:?}", path.display());
        looked_at += 1;
    }
    assert!(looked_at > 50, "{looked_at}");
}

#[test]
fn what_goes_up_is_seen_however_it_is_written() {
    let root = "// Layers:\n// low, high\nmod low;\nmod high;\npub use high::{Other, Public};\npub use low::Low;\n";
    let layers = Layers::read(root);
    for code in [
        "use crate::high;",
        "use crate::high::a::{b, c};",
        "use crate::{low::x, high::y};",
        "use crate::{\n    low::{self, a::{b, c}},\n    high::y,\n};",
        "pub(crate) use crate::high::y as z;",
        "use crate::Public;",
        "let it = crate::high::y();",
        "use super::super::high::y;",
    ] {
        let against = layers.against_the_order(&["low", "part"], code);
        assert_eq!(against.len(), 1, "{code}: {against:?}");
    }
    for code in ["use crate::low::high;", "use super::high;", "use crate::Low;", "// crate::high"] {
        let against = layers.against_the_order(&["low", "part"], code);
        assert!(against.is_empty(), "{code}: {against:?}");
    }
}
