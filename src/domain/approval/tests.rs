//! Approvals, by what is promised of them.

mod audit;
mod deadlines;
mod people;
mod sequences;
mod table;
