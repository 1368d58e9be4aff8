"""Numbers with intervals, comparisons and the page that shows them."""
