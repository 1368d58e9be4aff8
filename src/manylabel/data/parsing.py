"""What to say of a text file that cannot be parsed."""

__all__ = ["parser_advice"]


def parser_advice(error: Exception) -> str:
    """Say what to do about an error of a parser.

    Args:
        error: What the parser raised.

    Examples:
        >>> parser_advice(ValueError("found more fields than defined"))
        'a row has more fields than the header; put quotes around fields with a delimiter inside'
    """
    words = str(error).splitlines()[0] if str(error) else type(error).__name__
    if "utf-8" in words.lower():
        return "it is not UTF-8 text; save it again as UTF-8 (in Excel: CSV UTF-8)"
    if "more fields" in words:
        return "a row has more fields than the header; put quotes around fields with a delimiter inside"
    return f"{words}; check the quotes and delimiters of that row"
