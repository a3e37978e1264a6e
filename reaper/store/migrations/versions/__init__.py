"""
One file a revision, numbered as the schema it leads to. A released one is never edited: stores out there were made by it.
"""
