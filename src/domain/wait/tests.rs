mod commands;
mod sequences;
mod table;
