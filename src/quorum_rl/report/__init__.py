"""Pictures for people: the outermost room, which no other imports."""
