//! The tree over the seals of the audit: a Merkle tree as RFC 6962, section 2.1, defines it, so that any verifier of such
//! logs can check its roots and proofs.
//!
//! What is kept of it is the hash of every leaf, the roots of complete subtrees of 2^8, 2^16, ... leaves, and the frontier.
//! So the next root costs as many hashes as the size has bits, and a proof reads a few hundred hashes, however long the log is.

use sha2::{Digest as _, Sha256};

/// SHA-256 over a leaf or over two nodes.
pub type Hash = [u8; 32];

/// Of complete subtrees those are kept whose level is a multiple of this.
pub const KEPT_LEVELS: u8 = 8;

/// The hash of a leaf with this content.
pub fn leaf_hash(content: &[u8]) -> Hash {
    Sha256::new().chain_update([0_u8]).chain_update(content).finalize().into()
}

/// The hash of the node over these two.
pub fn node_hash(left: &Hash, right: &Hash) -> Hash {
    Sha256::new().chain_update([1_u8]).chain_update(left).chain_update(right).finalize().into()
}

/// The root of no leaves.
pub fn empty_root() -> Hash {
    Sha256::digest([]).into()
}

/// The root of a complete subtree of 2^`level` leaves, the `index`th of that level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// A multiple of [`KEPT_LEVELS`].
    pub level: u8,
    /// Its place among those of its level, from 0.
    pub index: u64,
    /// Its hash.
    pub hash: Hash,
}

/// What is needed of a tree to add leaves to it: the roots of its largest complete subtrees, the largest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frontier {
    size: u64,
    hashes: Vec<Hash>,
}

impl Frontier {
    /// The frontier of a tree of `size` leaves; none if these are not as many hashes as it has.
    pub fn new(size: u64, hashes: Vec<Hash>) -> Option<Self> {
        (usize::try_from(size.count_ones()).ok()? == hashes.len()).then_some(Self { size, hashes })
    }

    /// Leaves of the tree.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Its hashes, of the largest subtree first.
    pub fn hashes(&self) -> &[Hash] {
        &self.hashes
    }

    /// Adds a leaf. The subtrees that it completes and that are kept are added to `complete`.
    pub fn push(&mut self, leaf: Hash, complete: &mut Vec<Node>) {
        let (mut hash, mut index, mut level) = (leaf, self.size, 0_u8);
        while index & 1 == 1 {
            // A tree of that size has one: see `new`.
            let Some(left) = self.hashes.pop() else { break };
            hash = node_hash(&left, &hash);
            index >>= 1;
            level = level.saturating_add(1);
            if level % KEPT_LEVELS == 0 {
                complete.push(Node { level, index, hash });
            }
        }
        self.hashes.push(hash);
        self.size = self.size.saturating_add(1);
    }

    /// The root of the tree.
    pub fn root(&self) -> Hash {
        let mut hashes = self.hashes.iter().rev();
        let Some(last) = hashes.next() else { return empty_root() };
        hashes.fold(*last, |root, left| node_hash(left, &root))
    }
}

/// Where hashes that are kept are read: of a level that is a multiple of [`KEPT_LEVELS`] (0: leaves), by their place.
pub type Kept<'a> = dyn FnMut(u8, u64) -> Option<Hash> + 'a;

/// The root over the leaves from `first` to before `end`, of which there is one at least; none if a hash is not kept.
pub fn root_of(first: u64, end: u64, kept: &mut Kept<'_>) -> Option<Hash> {
    let leaves = end.checked_sub(first).filter(|leaves| *leaves > 0)?;
    if leaves.is_power_of_two() && first.checked_rem(leaves) == Some(0) {
        let level = u8::try_from(leaves.trailing_zeros()).ok()?;
        if level % KEPT_LEVELS == 0 {
            return kept(level, first.checked_shr(u32::from(level))?);
        }
    }
    let middle = first.checked_add(half(leaves))?;
    let left = root_of(first, middle, kept)?;
    let right = root_of(middle, end, kept)?;
    Some(node_hash(&left, &right))
}

/// The frontier of the first `size` leaves; none if a hash is not kept.
pub fn frontier_of(size: u64, kept: &mut Kept<'_>) -> Option<Frontier> {
    let mut hashes = Vec::new();
    let mut first = 0_u64;
    for bit in (0..u64::BITS).rev() {
        let leaves = 1_u64.checked_shl(bit)?;
        if size & leaves != 0 {
            let end = first.checked_add(leaves)?;
            hashes.push(root_of(first, end, kept)?);
            first = end;
        }
    }
    Frontier::new(size, hashes)
}

/// The proof that the leaf at `index` is in the tree of `size` leaves: RFC 6962, section 2.1.1. None if there is no such
/// leaf, or a hash is not kept.
pub fn inclusion(index: u64, size: u64, kept: &mut Kept<'_>) -> Option<Vec<Hash>> {
    if index >= size {
        return None;
    }
    let mut path = Vec::new();
    let (mut first, mut end) = (0_u64, size);
    while end.checked_sub(first)? > 1 {
        let middle = first.checked_add(half(end.checked_sub(first)?))?;
        if index < middle {
            path.push(root_of(middle, end, kept)?);
            end = middle;
        } else {
            path.push(root_of(first, middle, kept)?);
            first = middle;
        }
    }
    path.reverse();
    Some(path)
}

/// The proof that the tree of `older` leaves is what the tree of `newer` began with: RFC 6962, section 2.1.2. None if it has
/// none, or a hash is not kept.
pub fn consistency(older: u64, newer: u64, kept: &mut Kept<'_>) -> Option<Vec<Hash>> {
    if older == 0 || older > newer {
        return None;
    }
    let mut path = Vec::new();
    let (mut first, mut end, mut whole) = (0_u64, newer, true);
    while end != older {
        let middle = first.checked_add(half(end.checked_sub(first)?))?;
        if older <= middle {
            path.push(root_of(middle, end, kept)?);
            end = middle;
        } else {
            path.push(root_of(first, middle, kept)?);
            first = middle;
            whole = false;
        }
    }
    if !whole {
        path.push(root_of(first, end, kept)?);
    }
    path.reverse();
    Some(path)
}

/// Whether this path proves that the leaf at `index` is in the tree of `size` leaves with this root.
pub fn is_included(leaf: &Hash, index: u64, size: u64, path: &[Hash], root: &Hash) -> bool {
    if index >= size {
        return false;
    }
    let (mut place, mut last, mut hash) = (index, size - 1, *leaf);
    for sibling in path {
        if last == 0 {
            return false;
        }
        if place & 1 == 1 || place == last {
            hash = node_hash(sibling, &hash);
            while place & 1 == 0 && place != 0 {
                place >>= 1;
                last >>= 1;
            }
        } else {
            hash = node_hash(&hash, sibling);
        }
        place >>= 1;
        last >>= 1;
    }
    last == 0 && hash == *root
}

/// Whether this path proves that the tree of `newer` leaves with one root begins with that of `older` leaves with the other.
pub fn is_extended((older, older_root): (u64, &Hash), (newer, newer_root): (u64, &Hash), path: &[Hash]) -> bool {
    if older == 0 || older > newer {
        return false;
    }
    if older == newer {
        return path.is_empty() && older_root == newer_root;
    }
    // A tree that is complete is a node of the newer one by itself.
    let (first, path) = match path.split_first() {
        _ if older.is_power_of_two() => (*older_root, path),
        Some((first, path)) => (*first, path),
        None => return false,
    };
    let (mut place, mut last) = (older - 1, newer - 1);
    while place & 1 == 1 {
        place >>= 1;
        last >>= 1;
    }
    let (mut was, mut is) = (first, first);
    for hash in path {
        if last == 0 {
            return false;
        }
        if place & 1 == 1 || place == last {
            was = node_hash(hash, &was);
            is = node_hash(hash, &is);
            while place & 1 == 0 && place != 0 {
                place >>= 1;
                last >>= 1;
            }
        } else {
            is = node_hash(&is, hash);
        }
        place >>= 1;
        last >>= 1;
    }
    last == 0 && was == *older_root && is == *newer_root
}

/// The largest power of two below this number, which is 2 at least.
fn half(leaves: u64) -> u64 {
    let below = leaves.saturating_sub(1).max(1);
    1_u64 << (u64::BITS - 1 - below.leading_zeros())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::hex::{hex, parse_hex};
    use proptest::prelude::*;

    /// The leaves of the tree that the reference implementation of RFC 6962 is tested with.
    const LEAVES: [&[u8]; 8] = [
        &[],
        &[0x00],
        &[0x10],
        &[0x20, 0x21],
        &[0x30, 0x31],
        &[0x40, 0x41, 0x42, 0x43],
        &[0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x57],
        &[0x60, 0x61, 0x62, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68, 0x69, 0x6a, 0x6b, 0x6c, 0x6d, 0x6e, 0x6f],
    ];
    /// Its roots, for 1 to 8 leaves.
    const ROOTS: [&str; 8] = [
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
        "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
        "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
        "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
        "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
    ];

    /// RFC 6962, section 2.1, as it is written there.
    fn naive_root(leaves: &[Hash]) -> Hash {
        match leaves {
            [] => empty_root(),
            [leaf] => *leaf,
            _ => {
                let (left, right) = leaves.split_at(split(leaves.len()));
                node_hash(&naive_root(left), &naive_root(right))
            }
        }
    }

    fn naive_path(index: usize, leaves: &[Hash]) -> Vec<Hash> {
        if leaves.len() == 1 {
            return Vec::new();
        }
        let (left, right) = leaves.split_at(split(leaves.len()));
        let (mut path, other) = match index.checked_sub(left.len()) {
            None => (naive_path(index, left), right),
            Some(index) => (naive_path(index, right), left),
        };
        path.push(naive_root(other));
        path
    }

    fn naive_consistency(older: usize, leaves: &[Hash], whole: bool) -> Vec<Hash> {
        if older == leaves.len() {
            return if whole { Vec::new() } else { vec![naive_root(leaves)] };
        }
        let (left, right) = leaves.split_at(split(leaves.len()));
        let (mut path, other) = match older.checked_sub(left.len()) {
            None | Some(0) => (naive_consistency(older, left, whole), right),
            Some(rest) => (naive_consistency(rest, right, false), left),
        };
        path.push(naive_root(other));
        path
    }

    fn split(leaves: usize) -> usize {
        let mut split = 1;
        while split * 2 < leaves {
            split *= 2;
        }
        split
    }

    /// A tree of so many leaves with what is kept of it.
    fn tree(leaves: u64) -> (Vec<Hash>, Vec<Node>, Frontier) {
        let leaves: Vec<Hash> = (0..leaves).map(|leaf| leaf_hash(&leaf.to_be_bytes())).collect();
        let (mut frontier, mut nodes) = (Frontier::default(), Vec::new());
        leaves.iter().for_each(|leaf| frontier.push(*leaf, &mut nodes));
        (leaves, nodes, frontier)
    }

    fn kept<'a>(leaves: &'a [Hash], nodes: &'a [Node]) -> impl FnMut(u8, u64) -> Option<Hash> + 'a {
        move |level, index| match level {
            0 => leaves.get(usize::try_from(index).unwrap()).copied(),
            _ => nodes.iter().find(|node| (node.level, node.index) == (level, index)).map(|node| node.hash),
        }
    }

    #[test]
    fn roots_are_those_of_rfc_6962() {
        assert_eq!(hex(&empty_root()), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        let mut frontier = Frontier::default();
        assert_eq!(frontier.root(), empty_root());
        for (leaf, root) in LEAVES.iter().zip(ROOTS) {
            frontier.push(leaf_hash(leaf), &mut Vec::new());
            assert_eq!(hex(&frontier.root()), root, "{}", frontier.size());
        }
    }

    #[test]
    fn proofs_are_those_of_rfc_6962() {
        let leaves: Vec<Hash> = LEAVES.iter().map(|leaf| leaf_hash(leaf)).collect();
        let of = |texts: &[&str]| texts.iter().map(|text| parse_hex(text).unwrap()).collect::<Vec<Hash>>();
        let mut kept = kept(&leaves, &[]);
        assert_eq!(
            inclusion(0, 8, &mut kept).unwrap(),
            of(&[
                "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
                "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
                "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
            ])
        );
        assert_eq!(
            consistency(6, 8, &mut kept).unwrap(),
            of(&[
                "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
                "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
                "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
            ])
        );
        assert_eq!(inclusion(8, 8, &mut kept), None);
        assert_eq!(consistency(0, 8, &mut kept), None);
        assert_eq!(consistency(9, 8, &mut kept), None);
    }

    #[test]
    fn a_frontier_has_as_many_hashes_as_its_size_has_ones() {
        assert!(Frontier::new(5, vec![[0; 32]]).is_none());
        assert!(Frontier::new(5, vec![[0; 32]; 2]).is_some());
        assert!(Frontier::new(0, Vec::new()).is_some());
    }

    #[test]
    fn what_is_kept_of_a_long_log_is_enough_for_every_proof() {
        let (leaves, nodes, frontier) = tree(70_000);
        assert!(nodes.iter().any(|node| node.level == 16), "two levels are kept");
        let mut read = kept(&leaves, &nodes);
        let mut reads = 0;
        let mut counting = |level: u8, index: u64| {
            reads += 1;
            read(level, index)
        };
        for (older, newer) in [(1, 70_000), (255, 256), (65_536, 70_000), (65_535, 65_537), (300, 69_999)] {
            let roots = [older, newer].map(|size| root_of(0, size, &mut counting).unwrap());
            let path = consistency(older, newer, &mut counting).unwrap();
            assert!(is_extended((older, &roots[0]), (newer, &roots[1]), &path), "{older} {newer}");
            let path = inclusion(older - 1, newer, &mut counting).unwrap();
            let leaf = leaves[usize::try_from(older - 1).unwrap()];
            assert!(is_included(&leaf, older - 1, newer, &path, &roots[1]), "{older} {newer}");
        }
        assert_eq!(frontier_of(70_000, &mut counting).unwrap(), frontier);
        assert!(reads < 20_000, "{reads} hashes were read");
    }

    proptest! {
        #[test]
        fn roots_and_proofs_are_what_the_definition_says(size in 1_u64..600, index in 0_u64..600, older in 1_u64..600) {
            let (index, older) = (index % size, older % size + 1);
            let (leaves, nodes, frontier) = tree(size);
            let at = |number: u64| usize::try_from(number).unwrap();
            let root = naive_root(&leaves);
            prop_assert_eq!(frontier.root(), root);
            let mut kept = kept(&leaves, &nodes);
            prop_assert_eq!(root_of(0, size, &mut kept), Some(root));
            prop_assert_eq!(frontier_of(size, &mut kept), Some(frontier));
            let path = inclusion(index, size, &mut kept).unwrap();
            prop_assert_eq!(&path, &naive_path(at(index), &leaves));
            prop_assert!(is_included(&leaves[at(index)], index, size, &path, &root));
            let older_root = naive_root(&leaves[..at(older)]);
            let grown = consistency(older, size, &mut kept).unwrap();
            prop_assert_eq!(&grown, &naive_consistency(at(older), &leaves, true));
            prop_assert!(is_extended((older, &older_root), (size, &root), &grown));
        }

        #[test]
        fn what_is_not_so_is_not_proven(size in 2_u64..300, index in 0_u64..300, older in 1_u64..300, bent in 0_usize..8) {
            let (index, older) = (index % size, older % size + 1);
            let (leaves, nodes, frontier) = tree(size);
            let mut kept = kept(&leaves, &nodes);
            let root = frontier.root();
            let leaf = leaves[usize::try_from(index).unwrap()];
            let path = inclusion(index, size, &mut kept).unwrap();
            let other = (index + 1) % size;
            prop_assert!(!is_included(&leaf, other, size, &path, &root));
            prop_assert!(!is_included(&leaf_hash(b"another"), index, size, &path, &root));
            prop_assert!(!is_included(&leaf, size, size, &path, &root));
            let mut short = path.clone();
            short.pop();
            prop_assert!(!is_included(&leaf, index, size, &short, &root));
            let mut long = path.clone();
            long.push([0; 32]);
            prop_assert!(!is_included(&leaf, index, size, &long, &root));
            let mut wrong = path.clone();
            let place = bent % wrong.len();
            wrong[place][0] ^= 1;
            prop_assert!(!is_included(&leaf, index, size, &wrong, &root));

            let older_root = root_of(0, older, &mut kept).unwrap();
            let grown = consistency(older, size, &mut kept).unwrap();
            let mut false_root = older_root;
            false_root[31] ^= 1;
            prop_assert!(!is_extended((older, &false_root), (size, &root), &grown));
            prop_assert!(!is_extended((older, &older_root), (size, &false_root), &grown));
            prop_assert!(!is_extended((0, &older_root), (size, &root), &grown));
            prop_assert!(!is_extended((size + 1, &older_root), (size, &root), &grown));
            let mut long = grown.clone();
            long.push([0; 32]);
            prop_assert!(!is_extended((older, &older_root), (size, &root), &long));
        }
    }
}
