"""The page report.html: its content, template and embedded libraries."""
