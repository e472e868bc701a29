//! [`Block`]: the part of CG's random sparse matrix on one rank.
//!
//! The matrix is a sum of outer products of sparse random vectors, with weights that fall from 1 to a tenth, and a
//! shifted diagonal: symmetric, with spread eigenvalues. Every rank draws all vectors and keeps the elements of its
//! part.

use std::ops::Range;

use super::random::{BITS, Random};

/// The condition that the weights span.
const CONDITION: f64 = 0.1;
/// The value at the row's own index in the vector that generates it.
const HALF: f64 = 0.5;

/// The parameters of the matrix.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Rows, which are as many as columns.
    pub(super) rows: usize,
    /// Elements of a random vector.
    pub(super) elements: usize,
    /// The shift subtracted from the diagonal.
    pub(super) shift: f64,
}

/// Some rows and columns of the matrix, row by row.
pub(super) struct Block {
    /// The start of each row, and the end of the last one.
    starts: Vec<usize>,
    /// Within the block's columns.
    columns: Vec<u32>,
    values: Vec<f64>,
}

/// An element before duplicates are added up: column and value.
type Part = (u32, f64);

impl Block {
    pub(super) fn new(
        shape: &Shape,
        random: &mut Random,
        rows: &Range<usize>,
        columns: &Range<usize>,
    ) -> Self {
        let mut parts: Vec<Vec<Part>> = vec![Vec::new(); rows.len()];
        let ratio = CONDITION.powf(1.0 / shape.rows as f64);
        let mut weight = 1.0;
        let mut vectors = Vectors::new(shape);
        for row in 0..shape.rows {
            let vector = vectors.draw(random, row);
            let inside = |range: &Range<usize>, at: usize| range.contains(&at).then(|| at - range.start);
            for (column, factor) in vector {
                let Some(column) = inside(columns, *column) else { continue };
                let scale = weight * factor;
                for (row, value) in vector {
                    if let Some(row) = inside(rows, *row) {
                        parts[row].push((column as u32, value * scale));
                    }
                }
            }
            weight *= ratio;
        }
        for row in rows.clone().filter(|row| columns.contains(row)) {
            parts[row - rows.start].push(((row - columns.start) as u32, CONDITION - shape.shift));
        }
        Self::added_up(parts)
    }

    fn added_up(parts: Vec<Vec<Part>>) -> Self {
        let mut block = Self { starts: vec![0], columns: Vec::new(), values: Vec::new() };
        for mut row in parts {
            // Stable sort: sums depend on the order of creation.
            row.sort_by_key(|(column, _)| *column);
            for same in row.chunk_by(|(a, _), (b, _)| a == b) {
                block.columns.push(same[0].0);
                block.values.push(same.iter().map(|(_, value)| value).sum());
            }
            block.starts.push(block.columns.len());
        }
        block
    }

    /// Elements that are not zero.
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// The product with a vector of the block's columns.
    pub(super) fn multiply(&self, vector: &[f64], product: &mut [f64]) {
        for (sum, range) in product.iter_mut().zip(self.starts.windows(2)) {
            let (columns, values) = (&self.columns[range[0]..range[1]], &self.values[range[0]..range[1]]);
            *sum = columns.iter().zip(values).map(|(column, value)| value * vector[*column as usize]).sum();
        }
    }
}

/// Draws random vectors, each with different places.
struct Vectors {
    rows: usize,
    elements: usize,
    /// Indices are drawn below the next power of two, with this many bits.
    bits: u32,
    vector: Vec<(usize, f64)>,
}

impl Vectors {
    fn new(shape: &Shape) -> Self {
        let bits = shape.rows.next_power_of_two().ilog2();
        Self { rows: shape.rows, elements: shape.elements, bits, vector: Vec::new() }
    }

    fn draw(&mut self, random: &mut Random, row: usize) -> &[(usize, f64)] {
        self.vector.clear();
        while self.vector.len() < self.elements {
            let value = random.unit();
            let place = (random.next() >> (BITS - self.bits)) as usize;
            if place < self.rows && self.vector.iter().all(|(other, _)| *other != place) {
                self.vector.push((place, value));
            }
        }
        match self.vector.iter_mut().find(|(place, _)| *place == row) {
            Some((_, value)) => *value = HALF,
            None => self.vector.push((row, HALF)),
        }
        &self.vector
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { rows: 100, elements: 5, shift: 3.0 };

    fn whole(rows: Range<usize>, columns: Range<usize>) -> Vec<Vec<f64>> {
        let block = Block::new(&SHAPE, &mut Random::after(1), &rows, &columns);
        let mut dense = vec![vec![0.0; SHAPE.rows]; SHAPE.rows];
        for column in 0..columns.len() {
            let (mut unit, mut product) = (vec![0.0; columns.len()], vec![0.0; rows.len()]);
            unit[column] = 1.0;
            block.multiply(&unit, &mut product);
            for (row, value) in rows.clone().zip(product) {
                dense[row][columns.start + column] = value;
            }
        }
        dense
    }

    #[test]
    fn the_matrix_is_symmetric_and_its_parts_are_it() {
        let all = whole(0..100, 0..100);
        for (row, values) in all.iter().enumerate() {
            assert!(
                values.iter().enumerate().all(|(column, value)| (value - all[column][row]).abs() < 1e-12)
            );
            assert!(values[row] != 0.0, "{row}");
        }
        let part = whole(30..60, 10..50);
        for row in 30..60 {
            assert_eq!(part[row][10..50], all[row][10..50], "{row}");
        }
        assert_eq!(
            all.iter().flatten().filter(|v| **v != 0.0).count(),
            Block::new(&SHAPE, &mut Random::after(1), &(0..100), &(0..100)).len()
        );
    }
}
