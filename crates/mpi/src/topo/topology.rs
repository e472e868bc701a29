//! [`Topology`]: the neighbours of each process in a communicator: grids, graphs, and distributed graphs (MPI 5.0, sections 8.5
//! and 8.6).

use collectives::Neighbours;

use crate::error::{Class, Error, Result};
use crate::status::PROC_NULL;

/// The neighbours of each process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topology {
    /// A grid (`MPI_CART`).
    Grid(Grid),
    /// A graph known to all processes (`MPI_GRAPH`).
    Graph(Graph),
    /// A graph in which each process knows only its own neighbours (`MPI_DIST_GRAPH`).
    DistGraph(DistGraph),
}

/// A grid of processes; consecutive ranks differ in the last dimension first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    dims: Vec<i32>,
    periods: Vec<bool>,
}

/// A graph: the neighbours of rank `r` are `edges[index[r - 1]..index[r]]`, from 0 on for rank 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    index: Vec<i32>,
    edges: Vec<i32>,
}

/// The neighbours of one process, with the weights of its edges if they have any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DistGraph {
    /// Ranks that send to this process.
    pub sources: Vec<i32>,
    /// Ranks that this process sends to.
    pub destinations: Vec<i32>,
    /// Weights of the sources, then of the destinations.
    pub weights: Option<[Vec<i32>; 2]>,
}

impl Topology {
    /// The neighbours of a rank.
    pub(crate) fn neighbours(&self, rank: i32) -> Neighbours {
        let some = |ranks: &[i32]| ranks.iter().map(|rank| usize::try_from(*rank).ok()).collect();
        let (sources, destinations) = match self {
            Self::Grid(grid) => (some(&grid.neighbours(rank)), some(&grid.neighbours(rank))),
            Self::Graph(graph) => (some(graph.neighbours(rank)), some(graph.neighbours(rank))),
            Self::DistGraph(edges) => (some(&edges.sources), some(&edges.destinations)),
        };
        Neighbours { sources, destinations, is_grid: matches!(self, Self::Grid(_)) }
    }
}

impl Grid {
    /// A grid with this number of processes in each dimension, periodic or not.
    ///
    /// # Errors
    /// [`Class::DIMS`] for a dimension below 1, more than `i32::MAX` processes, or different numbers of periods and dimensions.
    pub fn new(dims: &[i32], periods: &[bool]) -> Result<Self> {
        let wrong = || Error::new(Class::DIMS, format_args!("{dims:?} are not valid dimensions of a grid"));
        let size = dims.iter().try_fold(1_i32, |size, dim| size.checked_mul(*dim).filter(|_| *dim > 0));
        if size.is_none() || dims.len() != periods.len() {
            return Err(wrong());
        }
        Ok(Self { dims: dims.to_vec(), periods: periods.to_vec() })
    }

    /// Processes in each dimension.
    pub fn dims(&self) -> &[i32] {
        &self.dims
    }

    /// Which dimensions are periodic.
    pub fn periods(&self) -> &[bool] {
        &self.periods
    }

    /// Its number of processes.
    pub fn size(&self) -> i32 {
        self.dims.iter().product()
    }

    /// The coordinates of a rank (MPI 5.0, section 8.5.5).
    ///
    /// # Errors
    /// [`Class::RANK`] for an invalid rank.
    pub fn coords(&self, rank: i32) -> Result<Vec<i32>> {
        if !(0..self.size()).contains(&rank) {
            return Err(Error::new(
                Class::RANK,
                format_args!("rank {rank} is not in a grid of {}", self.size()),
            ));
        }
        let mut rest = rank;
        let mut coords: Vec<i32> = self
            .dims
            .iter()
            .rev()
            .map(|dim| {
                let at = rest % dim;
                rest /= dim;
                at
            })
            .collect();
        coords.reverse();
        Ok(coords)
    }

    /// The rank at these coordinates, which wrap around in periodic dimensions (MPI 5.0, section 8.5.5).
    ///
    /// # Errors
    /// [`Class::ARG`] for coordinates beyond a border.
    pub fn rank(&self, coords: &[i32]) -> Result<i32> {
        let outside =
            || Error::new(Class::ARG, format_args!("{coords:?} is not in the grid {:?}", self.dims));
        if coords.len() != self.dims.len() {
            return Err(outside());
        }
        coords.iter().zip(self.dims.iter().zip(&self.periods)).try_fold(0, |rank, (at, (dim, is_ring))| {
            let at = if *is_ring { at.rem_euclid(*dim) } else { *at };
            (0..*dim).contains(&at).then(|| rank * dim + at).ok_or_else(outside)
        })
    }

    /// The source and destination of a shift by `by` places along a dimension; [`PROC_NULL`] beyond a border
    /// (MPI 5.0, section 8.5.6).
    ///
    /// # Errors
    /// [`Class::DIMS`] for an invalid dimension; [`Class::RANK`] as [`Grid::coords`].
    pub fn shift(&self, rank: i32, dimension: usize, by: i32) -> Result<(i32, i32)> {
        let coords = self.coords(rank)?;
        let none = || Error::new(Class::DIMS, format_args!("there is no dimension {dimension}"));
        let here = *coords.get(dimension).ok_or_else(none)?;
        let at = |by: i64| {
            let place = i64::from(here) + by;
            let place =
                if self.periods[dimension] { place.rem_euclid(self.dims[dimension].into()) } else { place };
            let mut coords = coords.clone();
            coords[dimension] = i32::try_from(place).unwrap_or(-1);
            self.rank(&coords).unwrap_or(PROC_NULL)
        };
        Ok((at(-i64::from(by)), at(by.into())))
    }

    /// The lower and the upper neighbour in each dimension.
    fn neighbours(&self, rank: i32) -> Vec<i32> {
        let along = |dimension| self.shift(rank, dimension, 1).unwrap_or((PROC_NULL, PROC_NULL));
        (0..self.dims.len()).flat_map(|dimension| <[i32; 2]>::from(along(dimension))).collect()
    }

    /// The grid of the remaining dimensions, and the number of the part that contains a rank.
    pub(crate) fn sub_grid(&self, rank: i32, remain: &[bool]) -> Result<(Self, i32)> {
        if remain.len() != self.dims.len() {
            return Err(Error::new(Class::DIMS, "there must be a flag for each dimension"));
        }
        let pick =
            |keep: bool| remain.iter().enumerate().filter(move |(_, kept)| **kept == keep).map(|(at, _)| at);
        let grid = |keep: bool| Self {
            dims: pick(keep).map(|at| self.dims[at]).collect(),
            periods: pick(keep).map(|at| self.periods[at]).collect(),
        };
        let coords = self.coords(rank)?;
        let given_up: Vec<i32> = pick(false).map(|at| coords[at]).collect();
        Ok((grid(true), grid(false).rank(&given_up)?))
    }
}

impl Graph {
    /// A graph of `index.len()` processes.
    ///
    /// # Errors
    /// [`Class::ARG`] if the index descends, does not end at the number of edges, or an edge has an invalid rank.
    pub fn new(index: &[i32], edges: &[i32]) -> Result<Self> {
        let rises = index.first().is_none_or(|first| *first >= 0) && index.is_sorted();
        let ends = index.last().copied().unwrap_or(0) as usize == edges.len();
        let leads = edges.iter().all(|edge| (0..index.len() as i32).contains(edge));
        if !(rises && ends && leads) {
            return Err(Error::new(Class::ARG, "the index and the edges are no graph"));
        }
        Ok(Self { index: index.to_vec(), edges: edges.to_vec() })
    }

    /// For each rank, the number of neighbours of this rank and all ranks before it.
    pub fn index(&self) -> &[i32] {
        &self.index
    }

    /// The neighbours of all ranks.
    pub fn edges(&self) -> &[i32] {
        &self.edges
    }

    /// The neighbours of a rank; none for an invalid rank (MPI 5.0, section 8.5.5).
    pub fn neighbours(&self, rank: i32) -> &[i32] {
        let Some(end) = usize::try_from(rank).ok().and_then(|rank| self.index.get(rank)) else { return &[] };
        let begin = if rank == 0 { 0 } else { self.index[rank as usize - 1] };
        &self.edges[begin as usize..*end as usize]
    }
}

/// Replaces dimensions that are 0 so that a grid has `nodes` processes, as balanced as possible and in descending order
/// (`MPI_Dims_create`; MPI 5.0, section 8.5.2).
///
/// # Errors
/// [`Class::DIMS`] if the other dimensions do not divide `nodes`, or one is negative.
pub fn fill_dims(nodes: i32, dims: &mut [i32]) -> Result<()> {
    let fixed = dims.iter().filter(|dim| **dim != 0);
    let taken = fixed.clone().try_fold(1_i32, |all, dim| all.checked_mul(*dim).filter(|_| *dim > 0));
    let free = dims.iter().filter(|dim| **dim == 0).count();
    let text = format!("no grid of {nodes} processes has the dimensions {dims:?}");
    let wrong = || Error::new(Class::DIMS, text.clone());
    let taken = taken.filter(|taken| nodes > 0 && nodes % taken == 0).ok_or_else(wrong)?;
    let rest = nodes / taken;
    if free == 0 {
        return if rest == 1 { Ok(()) } else { Err(wrong()) };
    }
    let divisors: Vec<i32> = (1..=rest).take_while(|d| i64::from(*d).pow(2) <= rest.into()).collect();
    let divisors: Vec<i32> = divisors.into_iter().filter(|d| rest % d == 0).collect();
    let large = divisors.iter().rev().map(|d| rest / d).filter(|d| divisors.last() != Some(d));
    let divisors: Vec<i32> = divisors.iter().copied().chain(large).collect();
    let best = balanced_factors(rest, free, rest, &divisors).ok_or_else(wrong)?;
    dims.iter_mut().filter(|dim| **dim == 0).zip(best).for_each(|(dim, best)| *dim = best);
    Ok(())
}

/// `count` descending factors of `rest`, the first as small as possible, then the next; none above `most`.
fn balanced_factors(rest: i32, count: usize, most: i32, divisors: &[i32]) -> Option<Vec<i32>> {
    if count == 1 {
        return (rest <= most).then(|| vec![rest]);
    }
    let fits = |d: &&i32| {
        **d <= most && rest % **d == 0 && (**d as f64).powi(count as i32) >= f64::from(rest) * 0.999
    };
    divisors.iter().filter(fits).find_map(|d| {
        let mut factors = balanced_factors(rest / d, count - 1, *d, divisors)?;
        factors.insert(0, *d);
        Some(factors)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grid_coordinates_and_shifts() {
        let grid = Grid::new(&[2, 3], &[false, true]).expect("dimensions");
        for rank in 0..6 {
            let coords = grid.coords(rank).expect("inside");
            assert_eq!(coords, [rank / 3, rank % 3]);
            assert_eq!(grid.rank(&coords), Ok(rank));
        }
        assert_eq!(grid.rank(&[1, -1]), Ok(5));
        assert_eq!(grid.rank(&[2, 0]).expect_err("beyond").class, Class::ARG);
        assert_eq!(grid.shift(1, 0, 1), Ok((PROC_NULL, 4)));
        assert_eq!(grid.shift(3, 1, 7), Ok((5, 4)));
        assert_eq!(grid.shift(3, 1, i32::MIN), Ok((5, 4)));
        assert_eq!(grid.shift(0, 2, 1).expect_err("none").class, Class::DIMS);
        assert_eq!(grid.neighbours(0), [PROC_NULL, 3, 2, 1]);
        assert_eq!(grid.sub_grid(4, &[false, true]), Ok((Grid::new(&[3], &[true]).expect("one"), 1)));
        assert_eq!(grid.sub_grid(4, &[false, false]).map(|(grid, at)| (grid.size(), at)), Ok((1, 4)));
        for wrong in [&[0, 3][..], &[-1, 3], &[1 << 16, 1 << 16], &[2]] {
            assert_eq!(Grid::new(wrong, &[false; 2]).expect_err("none").class, Class::DIMS);
        }
    }

    #[test]
    fn invalid_graphs_are_errors() {
        let graph = Graph::new(&[2, 3, 3], &[1, 2, 0]).expect("a graph");
        assert_eq!((graph.neighbours(0), graph.neighbours(1)), (&[1, 2][..], &[0][..]));
        assert_eq!((graph.neighbours(2), graph.neighbours(3)), (&[][..], &[][..]));
        for (index, edges) in [(&[2, 1][..], &[0][..]), (&[1, 3], &[0]), (&[1, 1], &[2]), (&[-1], &[])] {
            assert_eq!(Graph::new(index, edges).expect_err("none").class, Class::ARG);
        }
    }

    #[test]
    fn dims_are_balanced() {
        let of = |nodes, dims: &[i32]| {
            let mut dims = dims.to_vec();
            fill_dims(nodes, &mut dims).map(|()| dims)
        };
        assert_eq!(of(6, &[0, 0]), Ok(vec![3, 2]));
        assert_eq!(of(7, &[0, 0]), Ok(vec![7, 1]));
        assert_eq!(of(6, &[0, 3, 0]), Ok(vec![2, 3, 1]));
        assert_eq!(of(12, &[0, 0, 0]), Ok(vec![3, 2, 2]));
        assert_eq!(of(36, &[0, 0]), Ok(vec![6, 6]));
        assert_eq!(of(1, &[0; 4]), Ok(vec![1; 4]));
        assert_eq!(of(1 << 20, &[0; 4]), Ok(vec![32; 4]));
        for (nodes, dims) in [(7, &[0, 3, 0][..]), (6, &[2]), (6, &[-2, 0]), (0, &[0])] {
            assert_eq!(of(nodes, dims).expect_err("none").class, Class::DIMS);
        }
        for nodes in 1..200 {
            for count in 1..4 {
                let dims = of(nodes, &vec![0; count]).expect("always");
                assert!(
                    dims.iter().product::<i32>() == nodes && dims.is_sorted_by(|a, b| a >= b),
                    "{dims:?}"
                );
            }
        }
    }
}
