//! The folders of `src` are layers: each folder uses only the folders before it, in the order that
//! `src/lib.rs` lists. The files of a folder are ordered as well, if its `mod.rs` lists an order.
//! Files may use each other in a circle only if they are a file and its own parts (its submodules).

mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use source::{Names, Source, Uses};

fn against_the_order(source: &Source) -> Vec<(Names, Names)> {
    let is_against = |file: &Names, used: &Names| {
        source.orders.iter().any(|(whole, order)| {
            let rank = |part: &Names| {
                let named = order.iter().position(|name| part.get(whole.len()) == Some(name));
                named.unwrap_or(order.len())
            };
            file.starts_with(whole) && used.starts_with(whole) && rank(file) < rank(used)
        })
    };
    let mut against = Vec::new();
    for (file, used) in source.uses() {
        let used = used.into_iter().filter(|used| is_against(&file, used));
        against.extend(used.map(|used| (file.clone(), used)));
    }
    against
}

/// Returns the files that use each other in a circle. A file and its own parts may form a circle,
/// but the parts alone may not.
fn circles(uses: &Uses, mut files: BTreeSet<Names>) -> Vec<BTreeSet<Names>> {
    let all = files.iter().map(|file| (file.clone(), reached(uses, &files, file)));
    let reached: BTreeMap<_, _> = all.collect();
    let mut found = Vec::new();
    while let Some(file) = files.pop_first() {
        let leads_back = |other: &&Names| reached[*other].contains(&file);
        let mut circle: BTreeSet<_> = reached[&file].iter().filter(leads_back).cloned().collect();
        files.retain(|file| !circle.contains(file));
        let Some(whole) = circle.first().cloned() else { continue };
        if circle.iter().all(|part| part.starts_with(&whole)) {
            circle.remove(&whole);
            found.extend(circles(uses, circle));
        } else {
            found.push(circle);
        }
    }
    found
}

fn reached(uses: &Uses, among: &BTreeSet<Names>, from: &Names) -> BTreeSet<Names> {
    let (mut found, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(file) = open.pop() {
        let used = uses.get(file).into_iter().flatten().filter(|used| among.contains(*used));
        open.extend(used.filter(|used| found.insert((*used).clone())));
    }
    found
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn no_layer_uses_a_higher_layer_and_no_files_use_each_other_in_a_circle() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../src");
    let mut source = Source::default();
    for path in files(&src) {
        let module = path.strip_prefix(&src).unwrap().with_extension("");
        let module = module.to_str().unwrap().to_owned().leak().split('/');
        let module: Names = module.filter(|name| !["lib", "mod"].contains(name)).collect();
        source.read(&module, fs::read_to_string(path).unwrap().leak());
    }
    let files = source.files();
    assert!(files.len() > 100, "{files:?}");
    assert_eq!(source.orders.len(), 2, "{:?}", source.orders);
    assert_eq!(source.find(&["server"], &["crate", "Permit"]), [["semaphore", "permit"]]);
    assert_eq!(against_the_order(&source), []);
    assert_eq!(circles(&source.uses(), files), []);
}

fn source<const N: usize>(files: [(&[&'static str], &'static str); N]) -> Source {
    let mut source = Source::default();
    files.into_iter().for_each(|(file, code)| source.read(file, code));
    source
}

/// Returns the files that a part of `low` uses against the order.
fn of_a_part(code: &'static str) -> BTreeSet<Names> {
    let root = "// Layers:\n// low, high\nmod low;\nmod high;\n\
                pub use high::{\n    Known,\n    Other as Renamed,\n};\npub use low::Low;";
    let read = source([(&[], root), (&["high"], ""), (&["low"], ""), (&["low", "part"], code)]);
    against_the_order(&read).into_iter().map(|(_, used)| used).collect()
}

#[test]
fn each_way_to_write_a_use_of_a_higher_layer_is_detected() {
    for code in [
        "use crate::high;",
        "use crate::high::*;",
        "use crate::high::a::{b, c};",
        "use crate::{low::x, high::y};",
        "use crate::{\n    low::{self, a::{b, c}},\n    high::y,\n};",
        "use crate::{high::{self}};",
        "pub(crate) use crate::high::y as z;",
        "use crate::Known;",
        "use crate::{Low, Renamed};",
        "let it = crate::Known::new();",
        "let it = crate::high::y();",
        "let it = Vec::<crate::high::Y>::new();",
        "let it = <Low as crate::high::Y>::new();",
        "assert!(crate::high::y(), \"it\");",
        "use super::super::high::y;",
        "use super::{super::high};",
        "mod inner { use super::super::super::high; }",
        "mod inner { fn y() {} } use super::super::high;",
    ] {
        assert_eq!(of_a_part(code), BTreeSet::from([vec!["high"]]), "{code}");
    }
    for code in [
        "use crate as root; type Y = root::high::Y;",
        "use crate::{self as root}; type Y = root::Known;",
        "use super::super as root; fn y() { use root::high::y; }",
    ] {
        assert_eq!(of_a_part(code), BTreeSet::from([vec![], vec!["high"]]), "{code}");
    }
    for code in [
        "use crate::low::high;",
        "use crate::Low;",
        "use super::high;",
        "mod inner { use super::super::high; }",
        "// crate::high",
        "/// crate::high",
        "let it = \"crate::high\";",
        "use high::Y;",
        "use ::high::{Y, Z};",
    ] {
        assert_eq!(of_a_part(code), BTreeSet::new(), "{code}");
    }
}

#[test]
fn circles_are_detected_except_between_a_file_and_its_submodules() {
    let whole = "mod p; mod q; pub use p::P; pub use q::Q;";
    let circles = |p, q| {
        let (parts, other) = ([["x", "p"], ["x", "q"]], (&["y"][..], "use crate::x::Own;"));
        let read = source([(&["x"], whole), (&parts[0], p), (&parts[1], q), other]);
        circles(&read.uses(), read.files())
    };
    assert_eq!(circles("use super::q::Q;", "use super::Own;"), []);
    let parts = [BTreeSet::from([vec!["x", "p"], vec!["x", "q"]])];
    assert_eq!(circles("use super::Q;", "use super::P;"), parts);
    assert_eq!(circles("use super::{Own, Q};", "use super::{Own, P};"), parts);
    let beyond = [BTreeSet::from([vec!["x"], vec!["x", "p"], vec!["y"]])];
    assert_eq!(circles("use crate::y::Y;", ""), beyond);
}
