//! The list of the public API in `tests/data/public-api.txt`. A review sees every change of it
//! there.
//! Items that are `#[doc(hidden)]` are for the program alone, and are not in the list.
//!
//! After an intended change, this command writes the list:
//!
//! ```text
//! PUBLIC_API=write cargo test --test library public_api
//! ```

use std::{collections::BTreeMap, env, fs, path::PathBuf};

use syn::{
    Attribute, Block, Fields, File, Ident, ImplItem, ImplItemConst, Item, ItemConst, ItemImpl,
    ItemMod, ItemStatic, ItemStruct, Path, Type, UseTree, Visibility, parse_quote,
    visit_mut::{self, VisitMut},
};

const LIST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/public-api.txt");

#[test]
fn the_public_api_is_the_one_in_the_list() {
    let sources = Sources::read();
    let items = sources.public(&[]);
    let found =
        prettyplease::unparse(&File { shebang: None, frontmatter: None, attrs: vec![], items });
    if env::var("PUBLIC_API").is_ok_and(|value| value == "write") {
        fs::write(LIST, &found).unwrap();
    }
    let listed = fs::read_to_string(LIST).unwrap();
    let lines = |text| str::lines(text).chain(["the end"]);
    if let Some((listed, found)) = lines(&listed).zip(lines(&found)).find(|(a, b)| a != b) {
        panic!(
            "the public API has changed: {found:?} where tests/data/public-api.txt has {listed:?}; \
             PUBLIC_API=write cargo test --test library public_api writes the list"
        );
    }
}

/// The crates that the library re-exports. Their items are listed where it does.
const CRATES: [&str; 4] = ["chat", "constraint", "json", "lab"];

/// The path of a module from the root of the library. The root of another crate is `[rope_cpu_NAME]`.
type Module = [String];

/// The place of a definition: its module, and its name in it.
type Place = (Vec<String>, String);

/// The items of all modules, and the implementations of each type.
#[derive(Default)]
struct Sources {
    modules: BTreeMap<Vec<String>, Vec<Item>>,
    implementations: BTreeMap<Place, Vec<Item>>,
}

impl Sources {
    fn read() -> Self {
        let mut sources = Self::default();
        sources.add_module(&[]);
        CRATES.iter().for_each(|name| sources.add_module(&[format!("rope_cpu_{name}")]));
        let all = sources.modules.iter().flat_map(|(m, items)| items.iter().map(move |i| (m, i)));
        let mut implementations: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (module, item) in all {
            let Item::Impl(item) = item else { continue };
            let Type::Path(implementing) = &*item.self_ty else { continue };
            let path: Vec<_> =
                implementing.path.segments.iter().map(|s| s.ident.to_string()).collect();
            if let (Some(place), Some(item)) =
                (sources.definition(module, &path), public_part(item.clone()))
            {
                implementations.entry(place).or_default().push(Item::Impl(item));
            }
        }
        sources.implementations = implementations;
        sources
    }

    /// Adds a module and its modules. Modules within a file are left out, and files by another path:
    /// they are tests, or replace a module that another system has.
    fn add_module(&mut self, module: &Module) {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let (crate_root, inner) = module.split_at(root_of(module).len());
        let mut path = match crate_root {
            [name] => root.join("crates").join(&name["rope_cpu_".len()..]).join("src"),
            _ => root.join("src"),
        };
        path.extend(inner);
        let path = if inner.is_empty() { path.join("lib") } else { path }.with_extension("rs");
        let text = fs::read_to_string(&path).unwrap();
        let file = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        for item in &file.items {
            if let Item::Mod(ItemMod { ident, content: None, attrs, .. }) = item
                && !attrs.iter().any(|attribute| attribute.path().is_ident("path"))
            {
                self.add_module(&[module, &[ident.to_string()]].concat());
            }
        }
        self.modules.insert(module.into(), file.items);
    }

    /// Returns the place where `path`, written in `module`, is defined; `None` if that is in another
    /// crate.
    fn definition(&self, module: &Module, path: &[String]) -> Option<Place> {
        let (first, rest) = path.split_first()?;
        if rest.is_empty() {
            let items = self.modules.get(module)?;
            if items.iter().any(|item| name(item).is_some_and(|name| name == *first)) {
                return Some((module.into(), first.clone()));
            }
            let imported = items.iter().filter_map(|item| match item {
                Item::Use(item) => Some(imports(&item.tree)),
                _ => None,
            });
            let path = imported.flatten().find(|(name, _)| name == first)?.1;
            return if path.len() > 1 { self.definition(module, &path) } else { None };
        }
        match &first[..] {
            "crate" => self.definition(root_of(module), rest),
            "self" => self.definition(module, rest),
            "super" => self.definition(module.split_last()?.1, rest),
            child => {
                let child = [child.to_string()];
                let inner = [module, &child].concat();
                let known =
                    [&inner[..], &child].into_iter().find(|m| self.modules.contains_key(*m))?;
                self.definition(known, rest)
            }
        }
    }

    /// Returns the public items of a module, without bodies and comments.
    fn public(&self, module: &Module) -> Vec<Item> {
        let mut found = Vec::new();
        for item in self.modules[module].iter().filter(|item| !is_hidden(item)) {
            match item {
                Item::Mod(item) if is_public(&item.vis) && item.content.is_none() => {
                    let (name, ident) = (item.ident.to_string(), &item.ident);
                    let items = self.public(&[module, &[name]].concat());
                    found.push(parse_quote!(pub mod #ident { #(#items)* }));
                }
                Item::Use(item) if is_public(&item.vis) => {
                    for (name, path) in imports(&item.tree) {
                        let known = self.modules.contains_key(&path[..1]);
                        match self.definition(module, &path) {
                            Some(place) => found.extend(self.listed(&place)),
                            None if known && name == "*" => found.extend(self.public(&path[..1])),
                            None if known && path.len() == 1 => {
                                let ident = syn::parse_str::<Ident>(&name).unwrap();
                                let items = self.public(&path);
                                found.push(parse_quote!(pub mod #ident { #(#items)* }));
                            }
                            // Of another crate.
                            None => {
                                let path = syn::parse_str::<Path>(&path.join("::")).unwrap();
                                found.push(parse_quote!(pub use #path;));
                            }
                        }
                    }
                }
                item => {
                    let name = name(item).filter(|_| is_public_item(item));
                    found.extend(name.into_iter().flat_map(|n| self.listed(&(module.into(), n))));
                }
            }
        }
        found
    }

    /// Returns a definition and the implementations of its type.
    fn listed(&self, place: &Place) -> Vec<Item> {
        let (module, own) = place;
        let named = |item: &&Item| name(item).is_some_and(|name| name == *own);
        let mut items: Vec<_> = self.modules[module].iter().filter(named).cloned().collect();
        items.extend(self.implementations.get(place).into_iter().flatten().cloned());
        items.iter_mut().for_each(|item| Interface.visit_item_mut(item));
        items
    }
}

/// Returns the root of a module's crate.
fn root_of(module: &Module) -> &Module {
    let foreign = module.first().is_some_and(|name| name.starts_with("rope_cpu_"));
    &module[..usize::from(foreign)]
}

/// Returns the names that a `use` declares, each with its path.
fn imports(tree: &UseTree) -> Vec<(String, Vec<String>)> {
    match tree {
        UseTree::Path(path) => {
            let start = path.ident.to_string();
            let add = |(name, rest): (String, Vec<String>)| {
                // `a::{self}` declares `a`.
                let name = if name == "self" { start.clone() } else { name };
                let rest = rest.into_iter().filter(|part| part != "self");
                (name, [start.clone()].into_iter().chain(rest).collect())
            };
            imports(&path.tree).into_iter().map(add).collect()
        }
        UseTree::Name(item) => vec![(item.ident.to_string(), vec![item.ident.to_string()])],
        UseTree::Rename(item) => vec![(item.rename.to_string(), vec![item.ident.to_string()])],
        UseTree::Glob(_) => vec![("*".into(), vec!["*".into()])],
        UseTree::Group(group) => group.items.iter().flat_map(imports).collect(),
    }
}

/// Returns the name that an item defines.
fn name(item: &Item) -> Option<String> {
    Some(match item {
        Item::Const(item) => item.ident.to_string(),
        Item::Enum(item) => item.ident.to_string(),
        Item::Fn(item) => item.sig.ident.to_string(),
        Item::Static(item) => item.ident.to_string(),
        Item::Struct(item) => item.ident.to_string(),
        Item::Trait(item) => item.ident.to_string(),
        Item::Type(item) => item.ident.to_string(),
        _ => return None,
    })
}

/// Returns whether a module or a re-export is `#[doc(hidden)]`.
fn is_hidden(item: &Item) -> bool {
    let attributes = match item {
        Item::Mod(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => return false,
    };
    let hidden = |a: &Attribute| {
        a.path().is_ident("doc") && a.parse_args::<Ident>().is_ok_and(|word| word == "hidden")
    };
    attributes.iter().any(hidden)
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn is_public_item(item: &Item) -> bool {
    is_public(match item {
        Item::Const(item) => &item.vis,
        Item::Enum(item) => &item.vis,
        Item::Fn(item) => &item.vis,
        Item::Static(item) => &item.vis,
        Item::Struct(item) => &item.vis,
        Item::Trait(item) => &item.vis,
        Item::Type(item) => &item.vis,
        _ => return false,
    })
}

/// Returns an implementation without what is private; `None` if all of it is.
fn public_part(mut item: ItemImpl) -> Option<ItemImpl> {
    if item.trait_.is_some() {
        item.items.clear();
        return Some(item);
    }
    item.items.retain(|item| match item {
        ImplItem::Const(item) => is_public(&item.vis),
        ImplItem::Fn(item) => is_public(&item.vis),
        _ => false,
    });
    (!item.items.is_empty()).then_some(item)
}

/// Removes from an item what callers cannot rely on.
struct Interface;

impl VisitMut for Interface {
    fn visit_attributes_mut(&mut self, attributes: &mut Vec<Attribute>) {
        let kept = ["cfg", "derive", "non_exhaustive"];
        attributes.retain(|a| kept.iter().any(|name| a.path().is_ident(name)));
    }

    fn visit_block_mut(&mut self, block: &mut Block) {
        block.stmts.clear();
    }

    fn visit_item_const_mut(&mut self, item: &mut ItemConst) {
        *item.expr = parse_quote!(_);
        visit_mut::visit_item_const_mut(self, item);
    }

    fn visit_item_static_mut(&mut self, item: &mut ItemStatic) {
        *item.expr = parse_quote!(_);
        visit_mut::visit_item_static_mut(self, item);
    }

    fn visit_impl_item_const_mut(&mut self, item: &mut ImplItemConst) {
        item.expr = parse_quote!(_);
        visit_mut::visit_impl_item_const_mut(self, item);
    }

    fn visit_item_struct_mut(&mut self, item: &mut ItemStruct) {
        if let Fields::Named(fields) = &mut item.fields {
            let all = std::mem::take(&mut fields.named);
            fields.named = all.into_iter().filter(|field| is_public(&field.vis)).collect();
        }
        visit_mut::visit_item_struct_mut(self, item);
    }
}
