"""Small tools that every other package may use. They import nothing of Mainspring but its errors."""
