//! [`Gradient`]: CG, the smallest eigenvalue of a sparse matrix by inverse iteration; each step solves a system of
//! equations by 25 steps of conjugate gradients.
//!
//! Ranks form a grid, and the matrix is distributed over it in blocks. Vectors are cut by columns of the grid, and
//! all ranks of a column have the same part. A product is summed along rows of the grid; the result, a part by rows,
//! is sent to the rank across the diagonal, which needs it as a part by columns. Scalar products are summed along
//! rows, too.

use std::ops::Range;

use datatypes::{Basic, Datatype};
use mpi::Buffer;
use verbs::Buf;

use super::super::Fault;
use super::job::Job;
use super::kernel::{Class, Outcome, Solve};
use super::matrix::{Block, Shape};
use super::random::Random;

/// Steps of conjugate gradients.
const STEPS: usize = 25;
/// Numbers drawn before the matrix.
const DRAWN: u64 = 1;
/// How close the result has to be.
const EPSILON: f64 = 1e-10;
/// Bytes of a number.
const NUMBER: usize = size_of::<f64>();
/// Floating-point operations in a second of a core, which is assumed.
pub(super) const RATE: f64 = 250e6;

/// The parameters of a class by NAS.
struct Problem {
    shape: Shape,
    times: usize,
    /// The result.
    zeta: f64,
}

fn problem(class: Class) -> Problem {
    let (rows, elements, times, shift, zeta) = match class {
        Class::S => (1_400, 7, 15, 10.0, 8.597_177_507_864_8),
        Class::W => (7_000, 8, 15, 12.0, 10.362_595_087_124),
        Class::A => (14_000, 11, 15, 20.0, 17.130_235_054_029),
        Class::B => (75_000, 13, 75, 60.0, 22.712_745_482_631),
    };
    Problem { shape: Shape { rows, elements, shift }, times, zeta }
}

impl Problem {
    /// Approximate elements of the matrix, before duplicates are added up.
    fn elements(&self) -> f64 {
        let vector = self.shape.elements as f64 + 1.0;
        self.shape.rows as f64 * vector * vector
    }

    /// Floating-point operations as NAS counts them.
    fn operations(&self) -> f64 {
        let (rows, vector) = (self.shape.rows as f64, self.shape.elements as f64);
        let product = vector * (vector + 1.0);
        2.0 * self.times as f64 * rows * (3.0 + product + STEPS as f64 * (5.0 + product) + 3.0)
    }
}

/// Bytes that all ranks together need.
pub(super) fn bytes(class: Class) -> u64 {
    // An element as it is made and as it stays.
    (problem(class).elements() * 28.0) as u64
}

/// The position of a rank in the grid, and its communication partners.
struct Grid {
    rows: usize,
    columns: usize,
    row: usize,
    column: usize,
    /// Rows of the matrix.
    order: usize,
}

impl Grid {
    /// As many columns as rows, or twice as many.
    fn new(rank: usize, ranks: usize, order: usize) -> Self {
        let rows = 1 << (ranks.ilog2() / 2);
        let columns = ranks / rows;
        Self { rows, columns, row: rank / columns, column: rank % columns, order }
    }

    /// Columns of the grid for each of its rows.
    fn folds(&self) -> usize {
        self.columns / self.rows
    }

    /// A part of a vector, cut by columns.
    fn part(&self, column: usize) -> Range<usize> {
        let end = |column| self.order * column / self.columns;
        end(column)..end(column + 1)
    }

    /// The rows of the matrix of a row of the grid.
    fn row_part(&self) -> Range<usize> {
        let first = self.row * self.folds();
        self.part(first).start..self.part(first + self.folds() - 1).end
    }

    /// Ranks in this row with which partial sums are exchanged: the ranks with the same fold, each at twice the
    /// distance of the one before.
    fn partners(&self, from: usize) -> Vec<usize> {
        let distances = std::iter::successors(Some(from), |distance| Some(distance * 2));
        let at = |distance: usize| self.row * self.columns + (self.column ^ distance);
        distances.take_while(|distance| *distance < self.columns).map(at).collect()
    }

    /// The rank that needs this rank's sums as its part of a vector, and whose sums this one needs.
    fn across(&self) -> usize {
        let (folds, fold) = (self.folds(), self.column % self.folds());
        self.column / folds * self.columns + self.row * folds + fold
    }

    /// The piece of the row's part that a fold sums up, relative to the row's beginning.
    fn piece(&self, fold: usize) -> Range<usize> {
        let (row, piece) = (self.row_part().start, self.part(self.row * self.folds() + fold));
        piece.start - row..piece.end - row
    }
}

/// Vectors of a solution, each a part.
struct Vectors {
    x: Vec<f64>,
    z: Vec<f64>,
    p: Vec<f64>,
    q: Vec<f64>,
    r: Vec<f64>,
    /// A product along rows, and the received part of another.
    w: Vec<f64>,
    came: Vec<f64>,
}

/// One rank of the kernel.
pub(super) struct Gradient {
    job: Job,
    problem: Problem,
    grid: Grid,
    block: Block,
    v: Vectors,
    out: Buf,
    into: Buf,
}

impl Gradient {
    pub(super) fn new(job: Job, class: Class) -> Result<Self, Fault> {
        let problem = problem(class);
        let grid = Grid::new(job.rank, job.ranks, problem.shape.rows);
        let (rows, columns) = (grid.row_part(), grid.part(grid.column));
        let block = Block::new(&problem.shape, &mut Random::after(DRAWN), &rows, &columns);
        let part = || vec![0.0; columns.len()];
        let v = Vectors {
            x: part(),
            z: part(),
            p: part(),
            q: part(),
            r: part(),
            w: vec![0.0; rows.len()],
            came: vec![0.0; rows.len()],
        };
        let lane = || Buf::alloc(rows.len().max(columns.len()).max(1) * NUMBER);
        Ok(Self { out: lane()?, into: lane()?, job, problem, grid, block, v })
    }

    /// One step of the inverse iteration; returns the estimate of the eigenvalue.
    fn step(&mut self) -> Result<f64, Fault> {
        self.solve()?;
        let products = [dot(&self.v.x, &self.v.z), dot(&self.v.z, &self.v.z)];
        let [xz, zz] = self.sum(products)?;
        let scale = 1.0 / zz.sqrt();
        self.v.x.iter_mut().zip(&self.v.z).for_each(|(x, z)| *x = scale * z);
        self.computed(3);
        Ok(self.problem.shape.shift + 1.0 / xz)
    }

    /// Solves for z such that the matrix times z is x.
    fn solve(&mut self) -> Result<(), Fault> {
        let v = &mut self.v;
        v.z.fill(0.0);
        v.r.copy_from_slice(&v.x);
        v.p.copy_from_slice(&v.x);
        let mut rho = dot(&v.r, &v.r);
        self.computed(1);
        [rho] = self.sum([rho])?;
        for _ in 0..STEPS {
            self.multiply(Of::Direction)?;
            let [pq] = self.sum([dot(&self.v.p, &self.v.q)])?;
            let alpha = rho / pq;
            let v = &mut self.v;
            add(&mut v.z, alpha, &v.p);
            add(&mut v.r, -alpha, &v.q);
            let own = dot(&v.r, &v.r);
            self.computed(4);
            let before = std::mem::replace(&mut rho, self.sum([own])?[0]);
            let (beta, v) = (rho / before, &mut self.v);
            v.p.iter_mut().zip(&v.r).for_each(|(p, r)| *p = r + beta * *p);
            self.computed(1);
        }
        // The residual, which NAS computes, too, and does not publish.
        self.multiply(Of::Solution)?;
        let off = self.v.x.iter().zip(&self.v.q).map(|(x, q)| (x - q) * (x - q)).sum();
        self.computed(1);
        self.sum([off]).map(drop)
    }

    /// Charges `passes` passes over the parts of vectors, with two operations per element.
    fn computed(&self, passes: usize) {
        self.job.computed((2 * passes * self.v.x.len()) as f64);
    }

    /// The matrix times a vector, as a part cut by columns, in q.
    fn multiply(&mut self, of: Of) -> Result<(), Fault> {
        let vector = match of {
            Of::Direction => &self.v.p,
            Of::Solution => &self.v.z,
        };
        self.block.multiply(vector, &mut self.v.w);
        self.job.computed(2.0 * self.block.len() as f64);
        let (folds, fold) = (self.grid.folds(), self.grid.column % self.grid.folds());
        let mine = self.grid.piece(fold);
        if folds > 1 {
            // Each of the two neighbours sums one half.
            let other = self.grid.piece(1 - fold);
            self.add_from(self.grid.partners(1)[0], other, mine.clone())?;
        }
        for partner in self.grid.partners(folds) {
            self.add_from(partner, mine.clone(), mine.clone())?;
        }
        let across = self.grid.across();
        if across == self.job.rank {
            self.v.q.copy_from_slice(&self.v.w[mine]);
            return Ok(());
        }
        self.swap(across, mine, self.v.q.len())?;
        Ok(self.into.read(0, bytemuck::cast_slice_mut(&mut self.v.q))?)
    }

    /// Sends a partner one piece of the product, and adds the piece received from it to another.
    fn add_from(&mut self, partner: usize, out: Range<usize>, to: Range<usize>) -> Result<(), Fault> {
        self.swap(partner, out, to.len())?;
        let came = &mut self.v.came[..to.len()];
        self.into.read(0, bytemuck::cast_slice_mut(came))?;
        self.v.w[to].iter_mut().zip(&*came).for_each(|(w, more)| *w += more);
        self.job.computed(came.len() as f64);
        Ok(())
    }

    fn swap(&self, with: usize, out: Range<usize>, came: usize) -> Result<(), Fault> {
        let number = Datatype::from(Basic::Double);
        let sent = &self.v.w[out];
        self.out.write(0, bytemuck::cast_slice(sent))?;
        let into = Buffer::of(&self.into, 0, came as i64, &number)?;
        self.job.exchange(with, &Buffer::of(&self.out, 0, sent.len() as i64, &number)?, into)
    }

    /// Sums numbers along the row of the grid; its ranks have all parts of a vector.
    fn sum<const N: usize>(&self, mut numbers: [f64; N]) -> Result<[f64; N], Fault> {
        let number = Datatype::from(Basic::Double);
        let (out, into) =
            (Buffer::of(&self.out, 0, N as i64, &number)?, Buffer::of(&self.into, 0, N as i64, &number)?);
        for partner in self.grid.partners(1) {
            self.out.write(0, bytemuck::cast_slice(&numbers))?;
            self.job.exchange(partner, &out, into.clone())?;
            let mut came = [0.0; N];
            self.into.read(0, bytemuck::cast_slice_mut(&mut came))?;
            numbers.iter_mut().zip(came).for_each(|(number, more)| *number += more);
        }
        Ok(numbers)
    }
}

impl Solve for Gradient {
    fn job(&self) -> &Job {
        &self.job
    }

    fn run(&mut self) -> Result<Outcome, Fault> {
        self.v.x.fill(1.0);
        self.step()?;
        self.v.x.fill(1.0);
        let began = self.job.begin()?;
        let mut zeta = 0.0;
        for _ in 0..self.problem.times {
            zeta = self.step()?;
        }
        let spent = self.job.slowest(began)?;
        let wanted = self.problem.zeta;
        // Not a number is not close to any.
        if (zeta - wanted).abs() <= EPSILON {
            return Ok(Outcome { spent, operations: self.problem.operations() });
        }
        Err(Fault::Corrupt(format!("the eigenvalue is {zeta:.13}, and published as {wanted:.13}")))
    }
}

/// Which vector is multiplied.
#[derive(Clone, Copy)]
enum Of {
    Direction,
    Solution,
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(to: &mut [f64], factor: f64, of: &[f64]) {
    to.iter_mut().zip(of).for_each(|(to, of)| *to += factor * of);
}

#[cfg(test)]
mod tests {
    use super::super::tests::alone;
    use super::*;

    /// Goal: the verification detects errors. Method: a matrix drawn from the next random number on has another
    /// eigenvalue.
    #[test]
    fn another_matrix_is_found_out() {
        let mut gradient = Gradient::new(alone(RATE), Class::S).expect("a kernel");
        gradient.run().expect("the published eigenvalue");
        let all = 0..gradient.problem.shape.rows;
        gradient.block = Block::new(&gradient.problem.shape, &mut Random::after(DRAWN + 1), &all, &all);
        let wrong = gradient.run().map(drop);
        let Err(Fault::Corrupt(why)) = &wrong else { panic!("{wrong:?}") };
        assert!(why.contains("published as 8.59717750786"), "{why}");
    }

    fn grids(ranks: usize) -> Vec<Grid> {
        (0..ranks).map(|rank| Grid::new(rank, ranks, 1_400)).collect()
    }

    /// Goal: the transpose partner is mutual and receives the part that it needs.
    #[test]
    fn the_grid_fits_together() {
        for ranks in [1, 2, 4, 8, 16, 32, 64] {
            let grids = grids(ranks);
            for (rank, grid) in grids.iter().enumerate() {
                let across = &grids[grid.across()];
                assert_eq!(across.across(), rank, "{ranks} ranks");
                let (fold, start) = (grid.column % grid.folds(), grid.row_part().start);
                let summed = grid.piece(fold).start + start..grid.piece(fold).end + start;
                assert_eq!(summed, across.part(across.column), "{rank} of {ranks}");
                for partner in grid.partners(1) {
                    assert_eq!(
                        (grids[partner].row, grids[partner].partners(1).contains(&rank)),
                        (grid.row, true)
                    );
                }
                let end = grid.part(grid.column).end;
                assert_eq!(end == 1_400, grid.column + 1 == grid.columns);
            }
        }
    }
}
