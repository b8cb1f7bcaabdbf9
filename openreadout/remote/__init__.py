"""Inputs and outputs behind a URL: what a server or an object store gives, as the stores and files that readers know.

Nothing of the extra `remote` is imported before the first request.
"""
