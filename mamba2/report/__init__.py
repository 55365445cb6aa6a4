"""What a person looks at: one self-contained HTML page, made of plain values; no other room is needed to draw it."""
