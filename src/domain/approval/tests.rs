//! Approvals, by what DESIGN 6 and 12 promise of them.

mod audit;
mod deadlines;
mod people;
mod sequences;
mod table;
