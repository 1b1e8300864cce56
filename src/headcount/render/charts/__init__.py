"""Charts as data with axes and ticks, drawn by matplotlib, in the page and in the terminal."""
