//! `PMI_process_mapping`: the node of each rank, as `(vector,(0,2,4),...)`.
//!
//! A block `(first,nodes,ranks)` stands for `nodes` nodes from number `first` on, each with the next `ranks` ranks. When the blocks
//! are used up before all ranks are placed, they repeat.

use thiserror::Error;

/// The maximum number of ranks in a job: a number sent by a peer makes us allocate four bytes for each.
pub const RANKS_MAX: u32 = 1 << 20;

/// Hydra's mapping for a job of one rank.
const SINGLE_RANK: &str = "(vector,0)";

/// Why a mapping cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum MappingError {
    /// Not in the form described in the module's documentation.
    #[error("the process mapping is not written as (vector,(first,nodes,ranks),...): '{0}'")]
    Form(String),
    /// Blocks that place no rank would repeat forever.
    #[error("the process mapping places no rank: '{0}'")]
    Empty(String),
    /// More ranks than [`RANKS_MAX`].
    #[error("a process mapping for {0} ranks, {RANKS_MAX} is the most")]
    TooMany(u32),
}

/// Consecutive nodes with the same number of ranks on each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Block {
    first: u32,
    nodes: u32,
    ranks: u32,
}

impl Block {
    /// The node of each rank in the block. The node number saturates.
    fn nodes_of_ranks(self) -> impl Iterator<Item = u32> {
        (0..self.nodes)
            .flat_map(move |node| std::iter::repeat_n(self.first.saturating_add(node), self.ranks as usize))
    }
}

/// The node of each of `size` ranks.
///
/// # Errors
/// If the text is invalid, or the job too large.
pub fn parse(text: &str, size: u32) -> Result<Vec<u32>, MappingError> {
    if size > RANKS_MAX {
        return Err(MappingError::TooMany(size));
    }
    let blocks = parse_blocks(text).ok_or_else(|| MappingError::Form(crate::wire::excerpt(text)))?;
    if blocks.iter().all(|block| block.nodes == 0 || block.ranks == 0) {
        return Err(MappingError::Empty(crate::wire::excerpt(text)));
    }
    let blocks: Vec<Block> = blocks.into_iter().filter(|block| block.nodes > 0 && block.ranks > 0).collect();
    Ok(blocks.iter().cycle().flat_map(|block| block.nodes_of_ranks()).take(size as usize).collect())
}

fn parse_blocks(text: &str) -> Option<Vec<Block>> {
    if text == SINGLE_RANK {
        return Some(vec![Block { first: 0, nodes: 1, ranks: 1 }]);
    }
    let mut rest = text.strip_prefix("(vector")?.strip_suffix(')')?;
    let mut blocks = Vec::new();
    while !rest.is_empty() {
        let (block, after) = rest.strip_prefix(",(")?.split_once(')')?;
        let mut numbers = block.split(',').map(|number| number.parse::<u32>().ok());
        let (first, nodes, ranks) = (numbers.next()??, numbers.next()??, numbers.next()??);
        if numbers.next().is_some() {
            return None;
        }
        blocks.push(Block { first, nodes, ranks });
        rest = after;
    }
    Some(blocks)
}

/// The mapping of ranks to nodes in as few blocks as their order allows.
#[must_use]
pub fn format(nodes: &[u32]) -> String {
    let mut blocks: Vec<Block> = Vec::new();
    for run in nodes.chunk_by(|a, b| a == b) {
        let (first, ranks) = (run[0], run.len() as u32);
        match blocks.last_mut() {
            Some(last) if last.ranks == ranks && last.first.checked_add(last.nodes) == Some(first) => {
                last.nodes += 1;
            }
            _ => blocks.push(Block { first, nodes: 1, ranks }),
        }
    }
    let blocks = shortest_period(&blocks)
        .iter()
        .map(|block| format!(",({},{},{})", block.first, block.nodes, block.ranks));
    format!("(vector{})", blocks.collect::<String>())
}

/// The shortest prefix that yields the blocks by repetition.
fn shortest_period(blocks: &[Block]) -> &[Block] {
    let repeats = |len: usize| {
        blocks.len().is_multiple_of(len) && blocks.chunks(len).all(|part| part == &blocks[..len])
    };
    let len = (1..=blocks.len()).find(|&len| repeats(len)).unwrap_or(0);
    &blocks[..len]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: mappings of launchers are understood. Method: their texts, and the corresponding nodes.
    #[test]
    fn mappings_are_read() {
        for (text, size, expected) in [
            ("(vector,(0,1,2))", 2, &[0, 0][..]),
            ("(vector,0)", 1, &[0]),
            ("(vector,(0,2,2))", 4, &[0, 0, 1, 1]),
            ("(vector,(0,2,1))", 5, &[0, 1, 0, 1, 0]),
            ("(vector,(0,1,2),(1,2,1))", 6, &[0, 0, 1, 2, 0, 0]),
            ("(vector,(3,1,1),(0,1,3))", 3, &[3, 0, 0]),
            ("(vector,(0,0,5),(7,1,1))", 2, &[7, 7]),
            ("(vector,(0,1,4294967295))", 1, &[0]),
            ("(vector,(4294967295,4294967295,1))", 2, &[u32::MAX, u32::MAX]),
            ("(vector,(0,1,1))", 0, &[]),
        ] {
            assert_eq!(parse(text, size).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn malformed_mappings_are_refused() {
        for text in [
            "",
            "unknown",
            "(vector, (0,1,1))",
            "(vector,(0, 1,1))",
            "(vector",
            "(vector,1)",
            "(vector,0,0)",
            "(vector,(0,1))",
            "(vector,(0,1,1,1))",
            "(vector,(0,1,-1))",
            "(vector,(0,1,1)",
            "(vector,(0,1,4294967296))",
            "(flat,(0,1,1))",
        ] {
            assert!(matches!(parse(text, 1), Err(MappingError::Form(_))), "{text}");
        }
        for text in ["(vector)", "(vector,(0,0,1))", "(vector,(0,1,0),(1,0,0))"] {
            assert_eq!(parse(text, 1), Err(MappingError::Empty(text.to_owned())));
        }
        assert_eq!(parse("(vector,(0,1,1))", RANKS_MAX).map(|nodes| nodes.len()), Ok(RANKS_MAX as usize));
        assert_eq!(parse("(vector,(0,1,1))", RANKS_MAX + 1), Err(MappingError::TooMany(RANKS_MAX + 1)));
    }

    #[test]
    fn mappings_are_written_in_few_blocks() {
        for (nodes, expected) in [
            (&[0, 0][..], "(vector,(0,1,2))"),
            (&[0, 0, 1, 1], "(vector,(0,2,2))"),
            (&[0, 1, 0, 1], "(vector,(0,2,1))"),
            (&[0, 0, 1], "(vector,(0,1,2),(1,1,1))"),
            (&[2, 1, 0], "(vector,(2,1,1),(1,1,1),(0,1,1))"),
            (&[u32::MAX, 0], "(vector,(4294967295,1,1),(0,1,1))"),
            (&[], "(vector)"),
        ] {
            assert_eq!(format(nodes), expected);
        }
    }

    /// Goal: a written mapping is read back. Method: every placement of up to six ranks on three nodes.
    #[test]
    fn written_mappings_are_read_back() {
        for size in 1..=6 {
            for code in 0..3u32.pow(size) {
                let placed: Vec<u32> = (0..size).map(|rank| code / 3u32.pow(rank) % 3).collect();
                assert_eq!(parse(&format(&placed), size).as_ref(), Ok(&placed), "{}", format(&placed));
            }
        }
    }
}
