"""The paths and payloads of other systems' administration APIs, in front of a store of their policy: one module or package for each."""
